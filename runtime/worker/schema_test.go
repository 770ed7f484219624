package worker_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	goyaml "go.yaml.in/yaml/v4"

	"github.com/leat-io/leat/config"
	"github.com/leat-io/leat/runtime/worker/builtin"
)

var update = flag.Bool("update", false, "write schema_docs.json anew")

// TestSchemaDocs holds schema_docs.json against the comments of the fields.
// With -update it writes it.
func TestSchemaDocs(t *testing.T) {
	t.Parallel()
	docs := map[string]string{}
	for _, dir := range optionPackages() {
		files, err := filepath.Glob(filepath.Join("..", "..", dir, "*.go"))
		require.NoError(t, err)
		require.NotEmpty(t, files, dir)
		for _, path := range files {
			if !strings.HasSuffix(path, "_test.go") {
				fieldDocs(t, dir, path, docs)
			}
		}
	}
	var got bytes.Buffer
	e := json.NewEncoder(&got)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	require.NoError(t, e.Encode(docs))
	if *update {
		require.NoError(t, os.WriteFile("schema_docs.json", got.Bytes(), 0o600))
	}
	want, err := os.ReadFile("schema_docs.json")
	require.NoError(t, err)
	require.Equal(t, string(want), got.String(), "an option's comment has changed: go test ./runtime/worker -run TestSchemaDocs -update")
}

// optionPackages are the folders of config and of all built-in options.
func optionPackages() []string {
	table := builtin.Table()
	options := []any{config.Config{}}
	for _, k := range table.Transports {
		options = append(options, k.Options)
	}
	for _, k := range table.Stores {
		options = append(options, k.Options)
	}
	for _, k := range table.Handlers {
		options = append(options, k.Options)
	}
	dirs := map[string]bool{}
	var add func(of reflect.Type)
	add = func(of reflect.Type) {
		if of.Kind() == reflect.Pointer {
			of = of.Elem()
		}
		if dir, ours := strings.CutPrefix(of.PkgPath(), "github.com/leat-io/leat/"); ours {
			dirs[dir] = true
		}
		for f := range of.Fields() {
			if f.Tag.Get("yaml") == ",inline" {
				add(f.Type)
			}
		}
	}
	for _, o := range options {
		add(reflect.TypeOf(o))
	}
	return slices.Sorted(maps.Keys(dirs))
}

// fieldDocs adds the comments of a file's fields that have a yaml tag, by
// "import/path.Type.Field". They begin with the name in YAML, and call their
// neighbours by those.
func fieldDocs(t *testing.T, dir, path string, docs map[string]string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
	require.NoError(t, err)
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok {
			return true
		}
		structure, ok := spec.Type.(*ast.StructType)
		if !ok {
			return true
		}
		names, texts := map[string]string{}, map[string]string{}
		for _, f := range structure.Fields.List {
			name := ""
			if f.Tag != nil {
				name, _, _ = strings.Cut(reflect.StructTag(strings.Trim(f.Tag.Value, "`")).Get("yaml"), ",")
			}
			if name == "" || name == "-" {
				continue
			}
			names[f.Names[0].Name] = name
			texts[f.Names[0].Name] = strings.Join(strings.Fields(f.Doc.Text()+f.Comment.Text()), " ")
		}
		for field, text := range texts {
			text = strings.ReplaceAll(text, "Config.", "")
			for _, other := range slices.Sorted(maps.Keys(names)) {
				text = regexp.MustCompile(`\b`+other+`\b`).ReplaceAllString(text, names[other])
			}
			text = strings.ReplaceAll(text, "defaults to", "Defaults to") // not the option of that name
			docs["github.com/leat-io/leat/"+dir+"."+spec.Name.Name+"."+field] = link.ReplaceAllString(text, "$1")
		}
		return false
	})
}

// link is a doc link.
var link = regexp.MustCompile(`\[([\w.]+)\]`)

// readSchema is what the program prints, and the same compiled.
func readSchema(t *testing.T) (raw map[string]any, compiled *jsonschema.Schema) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), testworker(t), "schema")
	text, err := cmd.Output()
	require.NoError(t, err)
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	require.NoError(t, err)
	c := jsonschema.NewCompiler()
	require.NoError(t, c.AddResource("worker.json", document))
	compiled, err = c.Compile("worker.json")
	require.NoError(t, err)
	return document.(map[string]any), compiled
}

// TestSchemaDescribesEveryOption looks at every property of every object.
func TestSchemaDescribesEveryOption(t *testing.T) {
	t.Parallel()
	raw, _ := readSchema(t)
	seen := 0
	var walk func(at string, v any)
	walk = func(at string, v any) {
		switch v := v.(type) {
		case []any:
			for _, item := range v {
				walk(at, item)
			}
		case map[string]any:
			if properties, ok := v["properties"].(map[string]any); ok {
				for name, p := range properties {
					require.NotEmpty(t, p.(map[string]any)["description"], "%s.%s", at, name)
					seen++
				}
			}
			for key, inner := range v {
				walk(at+"."+key, inner)
			}
		}
	}
	walk("", raw)
	require.Greater(t, seen, 40)
}

// TestSchemaDefaultsAreTheRealOnes loads a file that says all defaults, and
// one that says none.
func TestSchemaDefaultsAreTheRealOnes(t *testing.T) {
	t.Parallel()
	raw, _ := readSchema(t)
	said := defaultsOf(raw)
	require.Contains(t, said["defaults"], "concurrency")
	require.Contains(t, said, "drain_timeout")
	said["broker"] = "memory://x"
	said["consumers"] = map[string]any{"c": map[string]any{"topic": "t", "handler": "log"}}
	delete(said["defaults"].(map[string]any), "dedup") // off
	text, err := json.Marshal(said)
	require.NoError(t, err)
	load := func(text string) *config.Config {
		c, err := config.Load(config.Options{Data: []config.Data{{Name: "x", Text: []byte(text)}}})
		require.NoError(t, err)
		return c
	}
	want := load(`{broker: "memory://x", consumers: {c: {topic: t, handler: log}}}`)
	got := load(string(text))
	require.Equal(t, want.Name, got.Name)
	require.Equal(t, want.Topology, got.Topology)
	require.Equal(t, want.DrainTimeout, got.DrainTimeout)
	require.Equal(t, want.Defaults, got.Defaults)
	require.Equal(t, want.Consumers[0].Policy, got.Consumers[0].Policy)
	require.Equal(t, want.Consumers[0].Start, got.Consumers[0].Start)
}

// defaultsOf is the object of all defaults below a schema.
func defaultsOf(schema map[string]any) map[string]any {
	out := map[string]any{}
	properties, _ := schema["properties"].(map[string]any)
	for name, p := range properties {
		p := p.(map[string]any)
		if value, ok := p["default"]; ok {
			out[name] = value
		} else if inner := defaultsOf(p); len(inner) > 0 {
			out[name] = inner
		}
	}
	return out
}

// TestSchemaTakesEveryFile validates every file of the examples, and every
// block of the documents, that the program's own lint would look at.
func TestSchemaTakesEveryFile(t *testing.T) {
	t.Parallel()
	_, schema := readSchema(t)
	root := filepath.Join("..", "..")
	files, blocks := 0, 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "testdata" || d.Name() == "transport-dir" || strings.HasPrefix(d.Name(), ".") && len(d.Name()) > 2) {
			return filepath.SkipDir
		}
		text, readErr := os.ReadFile(path)
		switch filepath.Ext(path) {
		case ".md":
			for _, block := range config.Markdown(path, text) {
				validates(t, schema, path, block.Text)
				blocks++
			}
		case ".yaml":
			if regexp.MustCompile(`(?m)^consumers:`).Match(text) {
				validates(t, schema, path, text)
				files++
			}
		default:
			return nil
		}
		return readErr
	})
	require.NoError(t, err)
	require.Positive(t, files)
	require.Positive(t, blocks)
}

func validates(t *testing.T, schema *jsonschema.Schema, name string, text []byte) {
	t.Helper()
	var instance any
	require.NoError(t, goyaml.Load(text, &instance), name)
	err := schema.Validate(instance)
	wrong, _ := errors.AsType[*jsonschema.ValidationError](err)
	require.Nil(t, wrong, name)
}

func TestSchemaKnowsWhatIsBuiltIn(t *testing.T) {
	t.Parallel()
	_, schema := readSchema(t)
	for text, good := range map[string]bool{
		"broker: sqlite://w.db": true,
		"broker: {sqlite: {path: w.db, partitions: 4, retention: 24h}}":      true,
		"broker: {sqlite: {path: w.db, retention: 24}}":                      false,
		"broker: {sqlite: {file: w.db}}":                                     false,
		"broker: sqlit://w.db":                                               false,
		"broker: ${BROKER_URL:?}":                                            true,
		"broker: watermill-kafka://h:9092":                                   true,
		"broker: memory://x\nstore: {memory: {max_keys: 10}}":                true,
		"broker: memory://x\nstore: {memory: {max_keys: many}}":              false,
		"broker: memory://x\nstore: watermill-kafka://h":                     false,
		"broker: memory://x\ndefaults: {use: [retry]}":                       true, // a middleware of another program may be called so
		"broker: memory://x\ndefaults: {retry: {attempts: -1, max_park: 1}}": false,
	} {
		var instance any
		require.NoError(t, goyaml.Load([]byte(text+"\nconsumers: {c: {topic: t, handler: {log: {payload: true}}}}\n"), &instance))
		require.Equal(t, good, schema.Validate(instance) == nil, text)
	}
}
