package worker

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/leat-io/leat/config"
)

type listCommand struct {
	Transports listTransports `cmd:"" help:"Kinds of brokers, and what each can do."`
	Handlers   listHandlers   `cmd:"" help:"Handlers a file can name."`
	Middleware listMiddleware `cmd:"" help:"Middleware, and how a file turns it on."`
	Consumers  listConsumers  `cmd:"" help:"Consumers of a file."`
}

type (
	listTransports struct{}
	listHandlers   struct{}
	listMiddleware struct{}
	listConsumers  struct{ fileFlags }
)

// Run prints the table of capabilities.
func (listTransports) Run(ctx context.Context, p *process) error {
	o, err := gather(p.opts)
	if err != nil {
		return err
	}
	env := Env{Log: o.log}
	rows := [][]string{{"BROKER", "KEY ORDER", "ATTEMPTS KEPT", "DELAY", "BYTE WINDOW", "DEPTH", "BROWSE", "TX", "REPLAY", "DURABLE", "NETWORK", "DEDUP KEYS", "ABOUT"}}
	for _, k := range o.table.Transports {
		// Opening connects to nothing, and capabilities need no connection.
		t, err := k.Open(env, config.Component{Kind: k.Kind, URL: config.NewSecret(k.Example), Dir: "."})
		if err != nil {
			return fmt.Errorf("transport %s: %w", k.Kind, err)
		}
		c := t.Capabilities()
		rows = append(rows, []string{
			k.Example, string(c.KeyOrder), string(c.Attempts),
			yes(c.DurableDelay), yes(c.ByteWindow), yes(c.Depth), string(c.Browse), yes(c.Transactions),
			yes(c.Replay), yes(c.Durable), yes(c.Networked), yes(c.SQL), k.Doc,
		})
		if err := t.Close(ctx); err != nil {
			return err
		}
	}
	return printTable(p.out, rows)
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// Run prints names.
func (listHandlers) Run(p *process) error {
	o, err := gather(p.opts)
	if err != nil {
		return err
	}
	rows := [][]string{{"HANDLER", "ABOUT"}}
	for _, k := range o.table.Handlers {
		rows = append(rows, []string{k.Name, k.Doc})
	}
	return printTable(p.out, rows)
}

// Run prints names, and for links of the standard chain the option.
func (listMiddleware) Run(p *process) error {
	o, err := gather(p.opts)
	if err != nil {
		return err
	}
	rows := [][]string{{"MIDDLEWARE", "TURNED ON BY", "ABOUT"}}
	for _, k := range o.table.Middleware {
		by := "use, wrap"
		if k.Build == nil {
			by = k.Option
		}
		rows = append(rows, []string{k.Name, by, k.Doc})
	}
	return printTable(p.out, rows)
}

// Run prints the consumers of a file, which must be right but for what the
// program has to know.
func (c *listConsumers) Run(p *process) error {
	o, err := gather(p.with(c.option()))
	if err != nil {
		return err
	}
	cfg, err := config.Load(o.config)
	if err != nil {
		return err
	}
	rows := [][]string{{"CONSUMER", "TOPICS", "GROUP", "HANDLER", "BROKER", "DEAD LETTER"}}
	for i := range cfg.Consumers {
		c := &cfg.Consumers[i]
		rows = append(rows, []string{
			c.Name, strings.Join(c.Topics, ","), c.Group, c.Handler.Kind, cfg.BrokerOf(c.Broker).String(), string(c.DeadLetter),
		})
	}
	return printTable(p.out, rows)
}

// printTable aligns columns by spaces.
func printTable(w io.Writer, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, r := range rows {
		if _, err := fmt.Fprintln(t, strings.Join(r, "\t")); err != nil {
			return err
		}
	}
	return t.Flush()
}
