package transporttest

import (
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/transport"
)

// alike are legal names that something careless takes for each other.
func (r *rig) alike() []string {
	longest := r.caps.MaxNameLength
	if longest == 0 {
		longest = transport.MaxName
	}
	fill := strings.Repeat("x", longest-len(r.prefix)-1)
	return []string{
		r.prefix + fill + "a", r.prefix + fill + "b",
		r.prefix + "case", r.prefix + "Case", r.prefix + "CASE",
		r.prefix + "a.b", r.prefix + "a-b", r.prefix + "a_b", r.prefix + "ab",
	}
}

// apart are those of the names that may be topics beside each other, and the
// others, which the broker refuses.
func (r *rig) apart(names []string) (legal, refused []string) {
	merged := map[string]bool{}
	for _, name := range names {
		one := strings.Map(func(c rune) rune {
			if strings.ContainsRune(r.o.Merges, c) {
				return -1
			}
			return c
		}, name)
		if one != name && merged[one] {
			refused = append(refused, name)
			continue
		}
		merged[one] = one != name
		legal = append(legal, name)
	}
	return legal, refused
}

// names: topics and groups of alike names have nothing in common.
func names(r *rig) {
	pub := r.producer(r.tr)
	topics, refused := r.apart(r.alike())
	var members []*member
	for _, name := range topics {
		members = append(members, r.member(r.tr, func(c *transport.ConsumerConfig) {
			c.Topics, c.Group = []string{name}, name
		}))
	}
	shared := r.name("shared")
	var sharing []*member
	for _, name := range r.alike() {
		sharing = append(sharing, r.member(r.tr, func(c *transport.ConsumerConfig) {
			c.Topics, c.Group = []string{shared}, name
		}))
	}
	for _, name := range topics {
		r.publish(pub, name, msg("for "+name, "k"))
	}
	for _, name := range refused {
		err := r.declare(transport.TopologyDeclare, transport.Declaration{Topic: name})
		require.True(r, transport.Refused(err), "topic %q beside one that is taken for it: %v", name, err)
	}
	r.publish(pub, shared, msg("for all", "k"))
	for i, m := range members {
		ds := m.receive(1)
		require.Equal(r, "for "+topics[i], ds[0].ID)
		require.Equal(r, topics[i], ds[0].Topic)
		m.settle(transport.Ack, ds...)
	}
	for _, m := range sharing {
		ds := m.receive(1)
		require.Equal(r, "for all", ds[0].ID)
		m.settle(transport.Ack, ds...)
	}
	members[len(members)-1].quiet()
	sharing[len(sharing)-1].quiet()
}

func illegalNames() []string {
	return []string{"a b", "a/b", "a:b", "a$b", "größe", "a\x00b", "a'b", `a"b`, "a\nb", ".", "..", strings.Repeat("x", transport.MaxName+1)}
}

// namesRefused: a name that is not legal everywhere is refused, for good.
func namesRefused(r *rig) {
	good := r.name("good")
	for _, bad := range illegalNames() {
		for what, d := range map[string]transport.Declaration{
			"topic": {Topic: bad, Group: good},
			"group": {Topic: good, Group: bad},
		} {
			err := r.declare(transport.TopologyDeclare, d)
			require.Error(r, err, "%s %q is declared", what, bad)
			require.True(r, transport.Refused(err), "%s %q: %v is not marked with Refuse", what, bad, err)
			require.Error(r, r.opens([]string{d.Topic}, d.Group), "a consumer opens with %s %q", what, bad)
		}
	}
	require.Error(r, r.declare(transport.TopologyDeclare, transport.Declaration{Group: good}), "a topic without a name is declared")
}

// incomplete: a consumer without a topic or a group is refused.
func incomplete(r *rig) {
	require.Error(r, r.opens(nil, r.name("charge")), "a consumer opens without a topic")
	require.Error(r, r.opens([]string{r.name("orders")}, ""), "a consumer opens without a group")
}

// opens tries to open a consumer, and gives the error.
func (r *rig) opens(topics []string, group string) error {
	ctx, cancel := r.within()
	defer cancel()
	c, err := r.tr.OpenConsumer(ctx, transport.ConsumerConfig{
		Name: r.name("member"), Topics: topics, Group: group, Topology: transport.TopologyDeclare, Base: ctx,
		Prefetch: maxLimit, PrefetchBytes: maxBytes, Span: 1 << 20,
	})
	if err == nil {
		r.Cleanup(func() { _ = c.Close(ctx) }) // the test has failed
	}
	return err
}
