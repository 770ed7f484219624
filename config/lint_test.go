package config

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLintSkipsWhatIsNotKnown(t *testing.T) {
	t.Parallel()
	c := load(t, "broker: amqp://h\nconsumers: {c: {topic: t, handler: whatever, ordered_by: key, dedup: {}}}\n")
	errs, warnings := c.Lint(Facts{})
	require.Empty(t, errs)
	require.Empty(t, warnings)
}

func TestLintMaxNameOfTheBroker(t *testing.T) {
	t.Parallel()
	c := load(t, "name: p\nbroker: x\nconsumers: {c: {topic: "+strings.Repeat("t", 64)+", handler: h, dead_letter: drop}}\n")
	errs, _ := c.Lint(Facts{Brokers: map[string]BrokerFacts{"": {MaxName: 63}}})
	require.Len(t, errs, 1)
	require.Contains(t, errs[0].Message, "the topic has 64 characters; the most is 63")
}

func TestLintTakesEveryLegalCharacter(t *testing.T) {
	t.Parallel()
	for r := rune(' '); r < 0x180; r++ {
		if r >= 0x7F && r < 0xA0 || strings.ContainsRune(`"\`, r) {
			continue
		}
		c := load(t, "name: p\nbroker: x\nconsumers: {c: {topic: \"a"+string(r)+"a\", group: g, handler: h}}\n", func(o *Options) { o.LookupEnv = nil })
		errs, _ := c.Lint(Facts{})
		legal := strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-", r)
		require.Equal(t, legal, len(errs) == 0, "%q", r)
	}
}

func TestLintOrderIsFineWhereItIsKeptOrUnderstood(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"ordered_by: key, order_scope: worker", "ordered_by: none", "ordered_by: partition", "ordered_by: {key: payload.x}", "timeout: 1s"} {
		c := load(t, "name: p\nbroker: amqp://h\nconsumers: {c: {topic: t, handler: log, "+text+"}}\n")
		errs, _ := c.Lint(testFacts(c))
		require.Empty(t, errs, text)
	}
}

func TestLintGroupsOfDifferentBrokersMayBeEqual(t *testing.T) {
	t.Parallel()
	c := load(t, "name: p\nbroker: sqlite://a\nbrokers: {b: sqlite://b}\nconsumers: {c: {topic: t, handler: log, group: g}, d: {broker: b, topic: t, handler: log, group: g}}\n")
	errs, _ := c.Lint(testFacts(c))
	require.Empty(t, errs)
}

func TestLintGroupsOfOneBrokerUnderTwoNames(t *testing.T) {
	t.Parallel()
	for other, same := range map[string]bool{"sqlite://a": true, "sqlite://b": false, "{sqlite: {path: a}}": false} {
		c := load(t, "name: p\nbroker: sqlite://a\nbrokers: {b: "+other+", x: {sqlite: {path: a}}}\n"+
			"consumers: {c: {topic: t, handler: log, group: g}, d: {broker: b, topic: t, handler: log, group: g}, e: {broker: x, topic: u, handler: log, group: g}}\n")
		errs, _ := c.Lint(testFacts(c))
		require.Equal(t, same, len(errs) == 1, other)
	}
}

func TestLintDeadLetterThatIsASlipOfAWord(t *testing.T) {
	t.Parallel()
	for word, warned := range map[string]bool{"of": true, "non": true, "drpo": false, "dropp": true, "letters": false, "drop": false} {
		c := load(t, "name: p\nbroker: x\nconsumers: {c: {topic: t, handler: h, dead_letter: "+word+"}}\n")
		errs, warnings := c.Lint(Facts{})
		require.Empty(t, errs)
		if !warned {
			require.Empty(t, warnings, word)
			continue
		}
		require.Len(t, warnings, 1, word)
		require.Contains(t, warnings[0].Message, "did you mean drop")
	}
}

func TestLintKindsThatOthersCallOtherwise(t *testing.T) {
	t.Parallel()
	known := []string{"amqp", "amqps", "kafka", "memory", "mysql", "postgres", "sqlite", "watermill-amqp"}
	for theirs, ours := range map[string]string{"rabbitmq": "amqp", "RabbitMQ": "amqp", "mariadb": "mysql", "postgresql": "postgres", "sqlite3": "sqlite", "redpanda": "kafka"} {
		c := load(t, "name: p\nbroker: "+theirs+"://h\nconsumers: {c: {topic: t, handler: h}}\n")
		errs, _ := c.Lint(Facts{Known: Known{Transports: known}})
		require.Len(t, errs, 1)
		require.Contains(t, errs[0].Message, `did you mean "`+ours+`"?`)
	}
}
