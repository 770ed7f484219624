package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// FuzzLoad holds that no text makes Load, Decode, Lint or the printing of their errors panic.
func FuzzLoad(f *testing.F) {
	files, err := filepath.Glob("testdata/*/*.yaml")
	require.NoError(f, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(f, err)
		f.Add(text, "consumers.charge.timeout=5s")
	}
	for _, text := range []string{
		"a: &a [*a]", "a: &a {b: c}\nd: {<<: *a}", bom + five, "broker:\tx\n\tconsumers: y", "a: 1\na: 2", "? [a]\n: b", "a: " + strings.Repeat("[", 50),
		"broker: {sqlite: {}, memory: {}}", "broker: [x]", "consumers: {c: {topics: [], handler: {log: {payload: !!bool yes}}}}", "a: |\n  x\n--- \nb: c",
		"brokers: {b: sqlite://a}\nconsumers: {c: {broker: b, topic: '${X:-t}', handler: h, publish_to: {broker: b, topic: \"\"}}}",
		"```yaml\nbroker: x\n```\n~~~yml fragment\nbroker: y",
	} {
		f.Add([]byte(text), "a={")
	}
	f.Fuzz(func(_ *testing.T, text []byte, set string) {
		o := Options{Data: []Data{{Name: "fuzz", Text: text}}, LookupEnv: testEnv, ReadFile: func(string) ([]byte, error) { return text, nil }}
		_ = judge(o)
		_ = judge(Options{Data: append(Markdown("fuzz.md", text), Data{Name: "fuzz", Text: []byte(five)}), LookupEnv: testEnv})
		o.Set = []string{set}
		_ = judge(o)
	})
}

// TestHostileTexts: texts that are all of one kind come to an end. At a quarter
// of the largest size what is quadratic takes minutes, which the deadline of
// all tests ends.
func TestHostileTexts(t *testing.T) {
	t.Parallel()
	fill := func(part string) string { return strings.Repeat(part, maxFile/4/len(part)) }
	for _, text := range []string{
		fill("["), fill("{a: "), fill("- "), fill("? "), fill("a\n"), fill("abc: 1\n"), fill("x"), fill("\""), fill("password: "), fill("a://b@"),
		fill("${A}"), "name: " + fill("${A"), "name: " + fill("$"), "a: &a [x]\n" + fill("- *a\n"), fill("é: \"\n"), "a: " + fill("x@"), fill("a=b&"), fill("a:a"),
		five + "    group: " + strings.Repeat("${EMPTY}", 25_000) + "\n", strings.Repeat(" ", 1000) + fill("\n"),
	} {
		start := time.Now()
		_ = judge(Options{Data: []Data{{Name: "x", Text: []byte(text[:min(len(text), maxFile)])}}, LookupEnv: testEnv})
		t.Log(time.Since(start), strings.TrimSpace(text[:10]))
	}
	for _, part := range []string{"a://b@ ", "\"a://b ", "a://b:c ", "'a://'b", "invalid port \"", "\\\"a://"} {
		_ = MaskURL(fill(part))
	}
}
