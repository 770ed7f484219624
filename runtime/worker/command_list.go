package worker

import (
	"context"
	"fmt"
	"strings"

	"github.com/leat-io/leat/config"
	"github.com/leat-io/leat/runtime/transport"
)

type listCommand struct {
	Transports listTransports `cmd:"" help:"Kinds of brokers, and what each can do."`
	Handlers   listHandlers   `cmd:"" help:"Handlers a file can name."`
	Middleware listMiddleware `cmd:"" help:"Middleware, and how a file turns it on."`
	Consumers  listConsumers  `cmd:"" help:"Consumers of a file."`
}

type (
	listTransports struct{ outputFlag }
	listHandlers   struct{ outputFlag }
	listMiddleware struct{ outputFlag }
	listConsumers  struct {
		fileFlags
		outputFlag
	}
)

// listedTransport is a kind of broker in a list.
type listedTransport struct {
	Kind         string            `json:"kind"`
	Example      string            `json:"example"`
	KeyOrder     transport.Scope   `json:"key_order"`
	Attempts     transport.Keeping `json:"attempts_kept"`
	DurableDelay bool              `json:"delay"`
	ByteWindow   bool              `json:"byte_window"`
	Depth        bool              `json:"depth"`
	Browse       transport.Browse  `json:"browse"`
	Transactions bool              `json:"transactions"`
	Replay       bool              `json:"replay"`
	Groups       bool              `json:"groups"`
	Durable      bool              `json:"durable"`
	Networked    bool              `json:"networked"`
	SQL          bool              `json:"dedup_keys"`
	About        string            `json:"about"`
}

// Run prints what each kind can do.
func (l listTransports) Run(ctx context.Context, p *process) error {
	o, err := gather(p.opts)
	if err != nil {
		return err
	}
	env := Env{Topology: transport.TopologyDeclare, Log: o.log}
	var kinds []listedTransport
	for _, k := range o.table.Transports {
		// Opening connects to nothing, and capabilities need no connection.
		t, err := k.Open(env, config.Component{Kind: k.Kind, URL: config.NewSecret(k.Example), Dir: "."})
		if err != nil {
			return fmt.Errorf("transport %s: %w", k.Kind, err)
		}
		c := t.Capabilities()
		_, groups := t.(transport.GroupAdmin)
		kinds = append(kinds, listedTransport{
			Kind: k.Kind, Example: k.Example, KeyOrder: c.KeyOrder, Attempts: c.Attempts, DurableDelay: c.DurableDelay,
			ByteWindow: c.ByteWindow, Depth: c.Depth, Browse: c.Browse, Transactions: c.Transactions, Replay: c.Replay, Groups: groups,
			Durable: c.Durable, Networked: c.Networked, SQL: c.SQL, About: k.Doc,
		})
		if err := t.Close(ctx); err != nil {
			return err
		}
	}
	header := []string{"BROKER", "KEY ORDER", "ATTEMPTS KEPT", "DELAY", "BYTE WINDOW", "DEPTH", "BROWSE", "TX", "REPLAY", "GROUPS", "DURABLE", "NETWORK", "DEDUP KEYS", "ABOUT"}
	return printList(p.out, l.outputFlag, kinds, header, func(k listedTransport) []string {
		return []string{
			k.Example, string(k.KeyOrder), string(k.Attempts), yes(k.DurableDelay), yes(k.ByteWindow), yes(k.Depth), string(k.Browse),
			yes(k.Transactions), yes(k.Replay), yes(k.Groups), yes(k.Durable), yes(k.Networked), yes(k.SQL), k.About,
		}
	})
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// listedHandler is a handler in a list.
type listedHandler struct {
	Name  string `json:"name"`
	About string `json:"about"`
}

// Run prints names.
func (l listHandlers) Run(p *process) error {
	o, err := gather(p.opts)
	if err != nil {
		return err
	}
	var handlers []listedHandler
	for _, k := range o.table.Handlers {
		handlers = append(handlers, listedHandler{k.Name, k.Doc})
	}
	return printList(p.out, l.outputFlag, handlers, []string{"HANDLER", "ABOUT"}, func(h listedHandler) []string {
		return []string{h.Name, h.About}
	})
}

// listedMiddleware is a middleware in a list.
type listedMiddleware struct {
	Name  string `json:"name"`
	By    string `json:"turned_on_by"`
	About string `json:"about"`
}

// Run prints names, and for links of the standard chain the option.
func (l listMiddleware) Run(p *process) error {
	o, err := gather(p.opts)
	if err != nil {
		return err
	}
	var links []listedMiddleware
	for _, k := range o.table.Middleware {
		by := "use, wrap"
		if k.Build == nil {
			by = k.Option
		}
		links = append(links, listedMiddleware{k.Name, by, k.Doc})
	}
	return printList(p.out, l.outputFlag, links, []string{"MIDDLEWARE", "TURNED ON BY", "ABOUT"}, func(m listedMiddleware) []string {
		return []string{m.Name, m.By, m.About}
	})
}

// listedConsumer is a consumer in a list.
type listedConsumer struct {
	Name       string   `json:"name"`
	Topics     []string `json:"topics"`
	Group      string   `json:"group"`
	Handler    string   `json:"handler"`
	Broker     string   `json:"broker"`
	DeadLetter string   `json:"dead_letter"`
}

// Run prints the consumers of a file, which must be right but for what the
// program has to know.
func (l *listConsumers) Run(p *process) error {
	o, err := gather(p.with(l.option()))
	if err != nil {
		return err
	}
	cfg, err := config.Load(o.config)
	if err != nil {
		return err
	}
	var consumers []listedConsumer
	for i := range cfg.Consumers {
		c := &cfg.Consumers[i]
		consumers = append(consumers, listedConsumer{c.Name, c.Topics, c.Group, c.Handler.Kind, cfg.BrokerOf(c.Broker).String(), string(c.DeadLetter)})
	}
	header := []string{"CONSUMER", "TOPICS", "GROUP", "HANDLER", "BROKER", "DEAD LETTER"}
	return printList(p.out, l.outputFlag, consumers, header, func(c listedConsumer) []string {
		return []string{c.Name, strings.Join(c.Topics, ","), c.Group, c.Handler, c.Broker, c.DeadLetter}
	})
}
