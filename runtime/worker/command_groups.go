package worker

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/leat-io/leat/runtime/transport"
)

type groupsCommand struct {
	List groupsList `cmd:"" help:"Groups of a broker, what waits for them, and who reads them."`
	Drop groupsDrop `cmd:"" help:"Forget a group of a topic, and what waits for it."`
}

type groupsList struct {
	brokerFlags
	outputFlag
}

// listedGroup is a group in a list.
type listedGroup struct {
	Topic   string     `json:"topic"`
	Group   string     `json:"group"`
	Ready   int64      `json:"ready"`
	Delayed int64      `json:"delayed"`
	Oldest  *time.Time `json:"oldest"` // null where nothing waits
	Members []string   `json:"members"`
}

// Run prints the groups of one broker.
func (c *groupsList) Run(ctx context.Context, p *process) error {
	return c.administer(ctx, p, func(ctx context.Context, t transport.GroupAdmin) error {
		groups, err := t.Groups(ctx)
		if err != nil {
			return err
		}
		var list []listedGroup
		for _, g := range groups {
			l := listedGroup{Topic: g.Topic, Group: g.Group, Ready: g.Depth.Ready, Delayed: g.Depth.Delayed, Members: append([]string{}, g.Members...)}
			if !g.Depth.Oldest.IsZero() {
				oldest := g.Depth.Oldest.UTC()
				l.Oldest = &oldest
			}
			list = append(list, l)
		}
		header := []string{"TOPIC", "GROUP", "READY", "DELAYED", "OLDEST", "MEMBERS"}
		return printList(p.out, c.outputFlag, list, header, func(g listedGroup) []string {
			oldest := "-"
			if g.Oldest != nil {
				oldest = g.Oldest.Format(time.RFC3339)
			}
			members := "none"
			if len(g.Members) > 0 {
				members = strings.Join(g.Members, ",")
			}
			return []string{g.Topic, g.Group, strconv.FormatInt(g.Ready, 10), strconv.FormatInt(g.Delayed, 10), oldest, members}
		})
	})
}

type groupsDrop struct {
	brokerFlags

	Group string `arg:"" help:"Which group."`
	Topic string `required:"" help:"Of which topic."`
	Yes   bool   `short:"y" help:"Do not ask."`
}

// Run drops one group, if nobody reads it.
func (c *groupsDrop) Run(ctx context.Context, p *process) error {
	if !c.Yes && !isTerminal(p.in) {
		return usageError("dropping a group cannot be undone, and there is no terminal to ask on: say --yes")
	}
	return c.administer(ctx, p, func(ctx context.Context, t transport.GroupAdmin) error {
		if !c.Yes {
			waits, err := c.waiting(ctx, t)
			if err != nil {
				return err
			}
			if err := c.ask(p, waits); err != nil {
				return err
			}
		}
		if err := t.DropGroup(ctx, c.Topic, c.Group); err != nil {
			return err
		}
		_, err := fmt.Fprintf(p.out, "dropped group %s of topic %s\n", c.Group, c.Topic)
		return err
	})
}

// waiting counts what would be forgotten.
func (c *groupsDrop) waiting(ctx context.Context, t transport.GroupAdmin) (int64, error) {
	groups, err := t.Groups(ctx)
	if err != nil {
		return 0, err
	}
	for _, g := range groups {
		if g.Topic == c.Topic && g.Group == c.Group {
			return g.Depth.Ready + g.Depth.Delayed, nil
		}
	}
	return 0, fmt.Errorf("group %q of topic %q: %w", c.Group, c.Topic, transport.ErrNoGroup)
}

func (c *groupsDrop) ask(p *process, waiting int64) error {
	if _, err := fmt.Fprintf(p.err, "Forget group %s of topic %s, and that %d messages wait for it? [y/N] ", c.Group, c.Topic, waiting); err != nil {
		return err
	}
	answer, _ := bufio.NewReader(p.in).ReadString('\n')
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return errors.New("nothing was dropped")
}

// administer opens the broker for fn, and closes it.
func (f *brokerFlags) administer(ctx context.Context, p *process, fn func(context.Context, transport.GroupAdmin) error) (err error) {
	t, _, err := f.open(p)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.Close(context.WithoutCancel(ctx))) }()
	admin, ok := t.(transport.GroupAdmin)
	if !ok {
		tool := cmp.Or(t.Capabilities().GroupTool, "the broker's own tools")
		return fmt.Errorf("groups of the kind of broker %s: %w: use %s", t.Kind(), transport.ErrUnsupported, tool)
	}
	return fn(ctx, admin)
}
