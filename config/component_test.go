package config

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// wideOptions has a field of every type the decoder takes.
type wideOptions struct {
	Text       string                 `yaml:"text"`
	Flag       bool                   `yaml:"flag"`
	Small      int8                   `yaml:"small"`
	Count      uint16                 `yaml:"count"`
	Share      float64                `yaml:"share" min:"0" max:"1"`
	Wait       time.Duration          `yaml:"wait" max:"1m"`
	Bytes      Size                   `yaml:"bytes" min:"1KiB"`
	Token      Secret                 `yaml:"token"`
	Any        any                    `yaml:"any"`
	List       []string               `yaml:"list"`
	Labels     map[string]string      `yaml:"labels"`
	Parts      []widePart             `yaml:"parts"`
	ByName     map[string]*widePart   `yaml:"by_name"`
	Optional   *widePart              `yaml:"optional"`
	Next       Component              `yaml:"next"`
	Stamp      time.Time              `yaml:"stamp"`
	Skipped    string                 `yaml:"-"`
	Free       map[string]interface{} `yaml:"free"` //nolint:modernize // the older spelling must work as well
	wideInline `yaml:",inline"`
}

type wideInline struct {
	Inner int `yaml:"inner"`
}

type widePart struct {
	Name  string `yaml:"name" required:"true"`
	Level int    `yaml:"level"`
}

func (p *widePart) SetDefaults() { p.Level = 7 }

func (o *wideOptions) Validate() error {
	if o.Text == "bad" {
		return errors.Join(OptionErrorf("optional.name", "wrong with amqp://u:canary@h"), OptionErrorf("absent", "missing"), errors.New("all wrong"))
	}
	return nil
}

func handler(t *testing.T, options string) Component {
	t.Helper()
	return load(t, "broker: memory\nconsumers:\n  c:\n    topic: t\n    handler:\n      wide:\n"+options).Consumers[0].Handler
}

func TestDecode(t *testing.T) {
	t.Parallel()
	c := handler(t, `
        text: 1.10
        flag: true
        small: -8
        count: 65535
        share: 0.25
        wait: 250ms
        bytes: 1KiB
        token: 0123
        any: {a: [1, 2.5, true, ~, x, 2020-01-01, "3"]}
        list: [1.10, yes]
        labels: {a: 1}
        parts: [{name: a}, {name: b, level: 1}]
        by_name: {x: {name: c}}
        optional: {name: d}
        next: {forward: {topic: x}}
        stamp: 2026-11-30T07:00:00Z
        free: {k: null}
        inner: 5
`)
	o := wideOptions{Skipped: "kept"}
	require.NoError(t, c.Decode(&o))
	require.Equal(t, "1.10", o.Text)
	require.True(t, o.Flag)
	require.Equal(t, int8(-8), o.Small)
	require.Equal(t, uint16(65535), o.Count)
	require.InDelta(t, 0.25, o.Share, 0)
	require.Equal(t, 250*time.Millisecond, o.Wait)
	require.Equal(t, Size(1024), o.Bytes)
	require.Equal(t, "0123", o.Token.Reveal())
	require.Equal(t, map[string]any{"a": []any{int64(1), 2.5, true, nil, "x", "2020-01-01", "3"}}, o.Any)
	require.Equal(t, []string{"1.10", "yes"}, o.List)
	require.Equal(t, map[string]string{"a": "1"}, o.Labels)
	require.Equal(t, []widePart{{"a", 7}, {"b", 1}}, o.Parts)
	require.Equal(t, 7, o.ByName["x"].Level)
	require.Equal(t, widePart{"d", 7}, *o.Optional)
	require.Equal(t, "forward", o.Next.Kind)
	require.Equal(t, 2026, o.Stamp.Year())
	require.Equal(t, map[string]any{"k": nil}, o.Free)
	require.Equal(t, 5, o.Inner)
	require.Equal(t, "kept", o.Skipped)
}

func TestDecodeReportsEverything(t *testing.T) {
	t.Parallel()
	c := handler(t, `
        text: [a]
        flag: yes
        small: 300
        count: -1
        share: 2
        wait: 2m
        bytes: 1B
        token: {a: b}
        list: {a: b}
        labels: [a]
        parts: [x, {level: many}, null]
        by_name: {x: null}
        optional: 5
        next: {a: 1, b: 2}
        stamp: tomorrow
        inner: 0x10
        "-": a
        skipped: a
`)
	err := c.Decode(&wideOptions{})
	for _, want := range []string{
		"text: a list where one value is due", `flag: "yes" is neither true nor false`, `small: "300" is too large`, `count: "-1" is too large or negative`,
		`share: "2" is too large; the most is 1`, `wait: "2m" is too large; the most is 1m`, `bytes: "1B" is too small; the least is 1KiB`,
		"token: a map where one value is due", "list: a map where a list is due", "labels: a list where a map is due", `parts[0]: "x" where a map is due`,
		"parts[1].name is missing", `parts[1].level: "many" is not a whole number`, "parts[2]: nothing where an element is due", "by_name.x: nothing where a value is due",
		`optional: "5" where a map is due`, "next: a component is one key with its options under it, not 2 keys", "stamp:", `inner: "0x10" is not a whole number`,
		`unknown key "-"`, `unknown key "skipped"`,
	} {
		found := false
		for _, p := range problemsOf(t, err) {
			found = found || strings.Contains(p.Message, want)
			require.Equal(t, "test.yaml", p.File)
			require.Positive(t, p.Line)
		}
		require.True(t, found, want)
	}
	require.Len(t, problemsOf(t, err), 21)
}

func TestValidateIsPlaced(t *testing.T) {
	t.Parallel()
	p := problemsOf(t, handler(t, "        text: bad\n        optional: {name: x}\n").Decode(&wideOptions{}))
	require.Len(t, p, 3)
	require.Equal(t, "consumers.c.handler.wide.absent: missing", p[0].Message)
	require.Equal(t, "consumers.c.handler.wide: all wrong", p[1].Message)
	require.Equal(t, "consumers.c.handler.wide.optional.name: wrong with amqp://***@h", p[2].Message)
	require.Equal(t, []int{8, 26}, []int{p[2].Line, p[2].Col})
}

func TestComponentWithoutOptions(t *testing.T) {
	t.Parallel()
	c := load(t, five)
	require.NoError(t, c.Broker.Decode(&wideOptions{}))
	require.ErrorContains(t, c.Broker.Decode(&wideOptions{Text: "bad"}), "test.yaml:3:9: broker.absent: missing")
	require.ErrorContains(t, c.Broker.Errorf("", "no host in %s", "amqp://u:p@h"), "test.yaml:3:9: no host in amqp://***@h")
	require.ErrorContains(t, c.Consumers[0].Handler.Errorf("topic", "missing"), "test.yaml:7:14: consumers.charge.handler.charge.topic: missing")
	require.ErrorContains(t, c.Consumers[0].Handler.Decode(&testKafka{}), "test.yaml:7:14: consumers.charge.handler.charge.brokers is missing")
	require.NoError(t, Component{Kind: "memory"}.Decode(&wideOptions{}))
	require.ErrorContains(t, Component{Kind: "memory"}.Decode(&wideOptions{Text: "bad"}), "memory: all wrong")
	require.ErrorContains(t, Component{Kind: "memory"}.Errorf("x", "bad"), "bad")
	require.True(t, Component{}.IsZero())
	require.Equal(t, "memory", Component{Kind: "memory"}.String())
}

func TestOwnersCanNotPrintAReference(t *testing.T) {
	t.Parallel()
	c := handler(t, "        text: ${CANARY}\n        stamp: ${WORD}\n        token: \"canary\"\n")
	o := wideOptions{}
	err := c.Decode(&o)
	require.Len(t, problemsOf(t, err), 1)
	require.NotContains(t, err.Error(), "canary")
	err = c.Errorf("text", "%s and %s are wrong", o.Text, o.Token.Reveal())
	require.ErrorContains(t, err, "*** and *** are wrong")
	require.NotContains(t, c.Errorf("", "%s", o.Text).Error(), "canary")
}

func TestErrorfIsPlacedAtItsOption(t *testing.T) {
	t.Parallel()
	c := handler(t, "        text: x\n        optional: {name: x}\n")
	p := problemsOf(t, c.Errorf("optional.name", "no such file %q", "x"))
	require.Equal(t, "consumers.c.handler.wide.optional.name", p[0].Path)
	require.Equal(t, []int{8, 26}, []int{p[0].Line, p[0].Col})
}

func TestJoin(t *testing.T) {
	t.Parallel()
	require.NoError(t, Join(nil, nil))
	a, b := handler(t, "        texd: x\n").Decode(&wideOptions{}), errors.New("connect to amqp://u:canary@h")
	err := Join(a, nil, b, a)
	require.Len(t, problemsOf(t, err), 2)
	require.ErrorContains(t, err, "connect to amqp://***@h")
}

func TestComponentWithoutANameIsRefused(t *testing.T) {
	t.Parallel()
	for _, broker := range []string{`{"": {}}`, `{"a b": {}}`, `{: {}}`} {
		_, err := try("broker: " + broker + "\nconsumers: {c: {topic: t, handler: log}}\n")
		require.ErrorContains(t, err, "is not the name of a component", broker)
	}
}

func TestWordWhereAMapIsDue(t *testing.T) {
	t.Parallel()
	type login struct {
		Mechanism string `yaml:"mechanism" enum:"plain,other" required:"true"`
	}
	type encryption struct {
		CA string `yaml:"ca"`
	}
	var o struct {
		SASL *login      `yaml:"sasl"`
		TLS  *encryption `yaml:"tls"`
	}
	for text, want := range map[string]string{
		"sasl: plain": `write {mechanism: plain}`, "tls: true": "write {} for the defaults", "sasl: true": "write key: value", "tls: 5": "write key: value",
	} {
		c := load(t, "name: p\nbroker: {x: {"+text+"}}\nconsumers: {c: {topic: t, handler: h}}\n")
		require.ErrorContains(t, c.Broker.Decode(&o), want)
	}
}
