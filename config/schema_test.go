package config

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
)

func testParts() Parts {
	open := func(kinds ...string) (parts []Part) {
		for _, kind := range kinds {
			parts = append(parts, Part{Kind: kind, Doc: "about " + kind})
		}
		return parts
	}
	type unzip struct {
		// Level is a number; default 6.
		Level int `yaml:"level" min:"1" max:"9"`
	}
	return Parts{
		Transports: append(open("amqp", "memory", "sqlite"), Part{Kind: "kafka", Schemes: []string{"kafka+tls"}, Options: &testKafka{}}),
		Stores:     open("memory", "sqlite"),
		Handlers:   []Part{{Kind: "log"}, {Kind: "discard", Options: &struct{}{}}},
		Middleware: []Part{{Kind: "unzip", Options: &unzip{}}},
		Docs: map[string]string{
			"github.com/leat-io/leat/config.testKafka.Linger": "linger is how long to wait; default 5ms.",
			"github.com/leat-io/leat/config.Retry.Attempts":   "attempts counts the first run. -1 is unlimited. Defaults to 5.",
		},
	}
}

func compiled(t *testing.T) *jsonschema.Schema {
	t.Helper()
	text, err := Schema(testParts())
	require.NoError(t, err)
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	require.NoError(t, err)
	c := jsonschema.NewCompiler()
	require.NoError(t, c.AddResource("worker.json", document))
	s, err := c.Compile("worker.json")
	require.NoError(t, err)
	return s
}

// instance is what a validator sees of a text.
func instance(t *testing.T, name string, text []byte) any {
	t.Helper()
	var r report
	root := parse(name, ".", text, &r)
	require.NoError(t, r.err())
	return plainValue(root)
}

func TestSchemaTakesGoodFiles(t *testing.T) {
	t.Parallel()
	s := compiled(t)
	files, err := filepath.Glob("testdata/good/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NoError(t, s.Validate(instance(t, file, text)), file)
	}
}

// notStructural are the bad files whose fault is one that no schema shows: they do not parse, or options or names
// contradict each other, or a reference leads nowhere, or a component's own Validate refuses.
var notStructural = []string{
	"anchors", "at_sign", "complex_key", "control_character", "deep", "duplicate_keys", "empty", "flow_reference", "indentation", "list",
	"long_line", "many", "no_colon", "not_utf8", "open_bracket", "open_quote", "second_colon", "second_document", "syntax_in_secret",
	"syntax_near_secret", "tabs", "tags", "unknown_anchor", "very_deep", "http", "referred_values_hidden", "unknown_broker", "unset_variable",
}

func TestSchemaRefusesBadFiles(t *testing.T) {
	t.Parallel()
	s := compiled(t)
	files, err := filepath.Glob("testdata/bad/*.yaml")
	require.NoError(t, err)
	refused := 0
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		if strings.HasPrefix(name, "lint_") || slices.Contains(notStructural, name) {
			continue
		}
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Error(t, s.Validate(instance(t, file, text)), file)
		refused++
	}
	require.Greater(t, refused, 10)
}

// TestSchemaAgreesWithLoad holds the two against each other, on one change to a good file each.
func TestSchemaAgreesWithLoad(t *testing.T) {
	t.Parallel()
	s := compiled(t)
	for change, good := range map[string]bool{
		"":                                        true,
		"name=5":                                  true,
		"name=[a]":                                false,
		"naem=a":                                  false,
		"topology=verify":                         true,
		"topology=maybe":                          false,
		"topology=\"${EMPTY:-declare}\"":          true,
		"drain_timeout=1m30s":                     true,
		"drain_timeout=1.5h":                      true,
		"drain_timeout=30":                        false,
		"drain_timeout=7d":                        false,
		"drain_timeout=-1s":                       false,
		"broker=kafka://h":                        true,
		"broker=kafka+tls://h":                    true,
		"broker={kafka: {brokers: [h]}}":          true,
		"broker={kafka: {}}":                      false,
		"broker={kafka: {brokers: [h], x: 1}}":    false,
		"broker={kafka: {brokers: h}}":            false,
		"broker={kafka: {}, amqp: {}}":            false,
		"broker=[kafka]":                          false,
		"broker=\"${BROKER_URL}\"":                true,
		"brokers={a b: kafka://h}":                false,
		"store=memory":                            true,
		"consumers.c.concurrency=4":               true,
		"consumers.c.concurrency=\"${PORT}\"":     true,
		"consumers.c.concurrency=0":               false,
		"consumers.c.concurrency='4'":             false,
		"consumers.c.concurrency=1.5":             false,
		"consumers.c.prefetch_bytes=16MiB":        true,
		"consumers.c.prefetch_bytes=16":           false,
		"consumers.c.prefetch_bytes=16mb":         false,
		"consumers.c.timeout=\"${NONE:-5s}\"":     true,
		"consumers.c.dedup=off":                   true,
		"consumers.c.dedup=on":                    false,
		"consumers.c.dedup={window: 2h}":          true,
		"consumers.c.dedup={windows: 2h}":         false,
		"consumers.c.ordered_by=none":             true,
		"consumers.c.ordered_by=any":              false,
		"consumers.c.ordered_by={key: id}":        true, // to the schema, see below
		"consumers.c.ordered_by={}":               false,
		"consumers.c.publish_to=a":                true,
		"consumers.c.publish_to={topic: a}":       true,
		"consumers.c.publish_to={broker: a}":      false,
		"consumers.c.publish_to=[a]":              false,
		"consumers.c.use=[elsewhere]":             true,
		"consumers.c.use=[{unzip: {level: 3}}]":   true,
		"consumers.c.use=elsewhere":               false,
		"consumers.c.handler={elsewhere: {a: 1}}": true,
		"consumers.c.handler=a b":                 false,
		"consumers.c.topics=[a]":                  false,
		"consumers.c=a":                           false,
		"consumers={}":                            true, // merges
		"consumers.d={topics: [a], handler: log}": true,
		"consumers.d={topics: [], handler: log}":  false,
		"consumers.d={handler: log}":              false,
		"consumers.d={topic: a}":                  false,
		"defaults.retry.jitter=0.1":               true,
		"defaults.retry.jitter=1.1":               false,
		"defaults.topic=a":                        false,
	} {
		o := Options{Data: []Data{{Name: "x.yaml", Text: []byte("broker: sqlite://w\nbrokers: {a: sqlite://a}\nconsumers: {c: {topic: t, handler: log}}\n")}}, LookupEnv: testEnv}
		if change != "" {
			o.Set = []string{change}
		}
		var r report
		root := o.read(&r)
		require.NoError(t, r.err(), change)
		require.Equal(t, good, s.Validate(plainValue(root)) == nil, "the schema, %s", change)
		if strings.Contains(change, "unzip") || strings.Contains(change, "{key: id}") || strings.HasPrefix(change, "broker={kafka") {
			continue // options of parts, and what an owner validates, are not Load's
		}
		_, err := Load(o)
		require.Equal(t, good, err == nil, "Load, %s: %v", change, err)
	}
}

func TestSchemaReadsDefaults(t *testing.T) {
	t.Parallel()
	for doc, want := range map[string]any{
		"a is b. Defaults to 5.":            int64(5),
		"a is b; default 5, -1 for none.":   int64(5),
		"Default: 5.":                       int64(5),
		"Defaults to 8 × b.":                nil,
		"default the consumer's publish_to": nil,
		"none":                              nil,
	} {
		got, ok := defaultOf(doc, reflect.ValueOf(new(int)).Elem())
		require.Equal(t, want != nil, ok, doc)
		if ok {
			require.Equal(t, want, got)
		}
	}
	for doc, v := range map[string]any{
		"Defaults to {topic}--{group}--dead.": DefaultDeadLetter, "Default: 250ms.": time.Second, "Defaults to 16MiB.": Size(1), "default false.": true, "Defaults to 0.5.": 0.5,
	} {
		_, ok := defaultOf(doc, reflect.ValueOf(v))
		require.True(t, ok, doc)
	}

	text, err := Schema(testParts())
	require.NoError(t, err)
	var root struct {
		Properties struct {
			Defaults struct {
				Properties struct {
					Retry struct {
						Properties struct {
							Attempts struct {
								Default     any    `json:"default"`
								Description string `json:"description"`
							} `json:"attempts"`
						} `json:"properties"`
					} `json:"retry"`
				} `json:"properties"`
			} `json:"defaults"`
		} `json:"properties"`
	}
	require.NoError(t, json.Unmarshal(text, &root))
	attempts := root.Properties.Defaults.Properties.Retry.Properties.Attempts
	require.InDelta(t, 5, attempts.Default, 0)
	require.Contains(t, attempts.Description, "-1 is unlimited")
}

// FuzzSchemaTakesWhatLoadTakes: an editor never marks what a worker runs.
func FuzzSchemaTakesWhatLoadTakes(f *testing.F) {
	files, err := filepath.Glob("testdata/*/*.yaml")
	require.NoError(f, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(f, err)
		f.Add(text)
	}
	f.Add([]byte("broker: memory\nstore: {memory: {a: 1}}\nconsumers: {c: {topics: [a, b], handler: {log: {}}, retry: {jitter: 0.25}, dedup: {key: metadata.x},\n" +
		" publish_to: {topic: a}, wrap: [a], ordered_by: {key: payload.a}, concurrency: '${PORT}'}}"))
	var s *jsonschema.Schema
	f.Fuzz(func(t *testing.T, text []byte) {
		if judge(Options{Data: []Data{{Name: "x", Text: text}}, LookupEnv: testEnv}) != "" {
			return
		}
		if s == nil {
			s = compiled(t)
		}
		var r report
		root := parse("x", ".", text, &r)
		if !holdsNull(root) {
			require.NoError(t, s.Validate(plainValue(root)))
		}
	})
}

// holdsNull finds a key without a value, which the schema refuses by intent.
func holdsNull(n *node) bool {
	return n.null || slices.ContainsFunc(n.fields, func(f field) bool { return holdsNull(f.value) }) || slices.ContainsFunc(n.items, holdsNull)
}
