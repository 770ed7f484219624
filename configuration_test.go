package leat_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/config"
	"github.com/leat-io/leat/runtime/worker/builtin"
)

var update = flag.Bool("update", false, "write the tables of docs/configuration.md anew")

// written is a part of docs/configuration.md that comes from the schema.
var written = regexp.MustCompile(`(?s)<!-- written: ([a-z ]+) -->\n.*?<!-- end -->`)

// TestConfiguration holds the tables of docs/configuration.md against the
// schema that the program prints, and so against the structs and comments it
// comes from. With -update it writes them; the text around them is by hand.
func TestConfiguration(t *testing.T) {
	t.Parallel()
	const path = "docs/configuration.md"
	s := newSite(t)
	s.buildWorker()
	r := &reference{t: t}
	require.NoError(t, json.Unmarshal([]byte(s.run("worker schema")), &r.root))
	parts := r.parts()
	before := readPage(t, path)
	after := written.ReplaceAllStringFunc(before, func(old string) string {
		name := written.FindStringSubmatch(old)[1]
		text, ok := parts[name]
		require.True(t, ok, "there is no %q to write, or it is there twice", name)
		delete(parts, name)
		return "<!-- written: " + name + " -->\n" + text + "<!-- end -->"
	})
	require.Empty(t, parts, "%s has no place for these", path)
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(after), 0o644))
		return
	}
	require.Equal(t, after, before, "go test . -run TestConfiguration -update")
}

// object is a schema, or a part of one.
type object = map[string]any

// reference writes tables of a schema.
type reference struct {
	t    *testing.T
	root object
}

// parts are all that is written, by name.
func (r *reference) parts() map[string]string {
	consumer := r.root["properties"].(object)["consumers"].(object)["additionalProperties"].(object)
	file, own, inherited := maps.Clone(r.root), maps.Clone(consumer), r.root["properties"].(object)["defaults"].(object)
	properties := maps.Clone(consumer["properties"].(object))
	for name := range inherited["properties"].(object) {
		delete(properties, name)
	}
	own["properties"] = properties
	properties = maps.Clone(r.root["properties"].(object))
	for _, name := range []string{"defaults", "consumers"} {
		properties[name] = object{"type": "object", "description": properties[name].(object)["description"]}
	}
	file["properties"] = properties

	table, docs := builtin.Table(), map[string]string{}
	docs["file"] = r.table(file, reflect.TypeFor[config.Config]())
	docs["consumer"] = r.table(own, reflect.TypeFor[config.Consumer]())
	docs["inherited"] = r.table(inherited, reflect.TypeFor[config.Policy]())
	transports := map[string]reflect.Type{}
	for _, k := range table.Transports {
		transports[k.Kind] = reflect.TypeOf(k.Options)
		docs["brokers"] += r.kind("Broker", k.Kind, k.Example, r.def("broker", k.Kind), transports[k.Kind])
	}
	for _, k := range table.Stores {
		schema, of := r.def("store", k.Kind), reflect.TypeOf(k.Options)
		if of == transports[k.Kind] {
			docs["stores"] += fmt.Sprintf("\n### Store `%s`\n\n%s. Options: those of [broker `%[1]s`](#broker-%[1]s).\n", k.Kind, capital(k.Doc))
			continue
		}
		docs["stores"] += r.kind("Store", k.Kind, "", schema, of)
	}
	for _, k := range table.Handlers {
		docs["handlers"] += r.kind("Handler", k.Name, "", r.def("handler", k.Name), reflect.TypeOf(k.Options))
	}
	return docs
}

// def is what the schema says of the options of one kind.
func (r *reference) def(slot, kind string) object {
	for _, shape := range r.root["$defs"].(object)[slot].(object)["anyOf"].([]any) {
		if kinds, ok := shape.(object)["properties"].(object); ok {
			return kinds[kind].(object)
		}
	}
	return nil
}

// kind is the section of one kind.
func (r *reference) kind(what, name, example string, schema object, of reflect.Type) string {
	text := fmt.Sprintf("\n### %s `%s`\n\n%s.", what, name, capital(schema["description"].(string)))
	if example != "" {
		text += fmt.Sprintf(" URL: `%s`.", example)
	}
	if len(schema["properties"].(object)) == 0 {
		return text + " No options.\n"
	}
	return text + "\n" + r.table(schema, of)
}

func (r *reference) table(schema object, of reflect.Type) string {
	return "\n| key | type | default | meaning |\n|---|---|---|---|\n" + r.rows("", schema, of)
}

// rows tells of each property, and of those within it, in the order of the
// struct's fields.
func (r *reference) rows(within string, schema object, of reflect.Type) string {
	fields := fieldsOf(of)
	names := slices.Sorted(maps.Keys(schema["properties"].(object)))
	slices.SortStableFunc(names, func(a, b string) int {
		at := func(name string) int { return slices.IndexFunc(fields, func(f field) bool { return f.name == name }) }
		return at(a) - at(b)
	})
	var b strings.Builder
	for _, name := range names {
		p := schema["properties"].(object)[name].(object)
		byDefault, limits, meaning := r.meaning(name, p)
		if required, _ := schema["required"].([]any); slices.Contains(required, any(name)) {
			byDefault = "required"
		}
		fmt.Fprintf(&b, "| `%s%s` | %s | %s | %s |\n", within, name, r.typeOf(p)+limits, byDefault, strings.ReplaceAll(meaning, "|", `\|`))
		for _, shape := range shapesOf(p) {
			if _, ok := shape["properties"]; ok {
				var inner reflect.Type
				if i := slices.IndexFunc(fields, func(f field) bool { return f.name == name }); i >= 0 {
					inner = fields[i].of
				}
				b.WriteString(r.rows(within+name+".", shape, inner))
			}
		}
	}
	return b.String()
}

// shapesOf is what a value may be: one schema or several.
func shapesOf(p object) (shapes []object) {
	several, ok := p["anyOf"].([]any)
	if !ok {
		return []object{p}
	}
	for _, shape := range several {
		if s := shape.(object); s["$ref"] != "#/$defs/reference" {
			shapes = append(shapes, s)
		}
	}
	return shapes
}

// typeOf is what a value may be, in words.
func (r *reference) typeOf(p object) string {
	var out []string
	for _, shape := range shapesOf(p) {
		out = append(out, r.shape(shape))
	}
	return strings.Join(out, " or ")
}

func (r *reference) shape(s object) string {
	pattern, _ := s["pattern"].(string)
	kind, _ := s["type"].(string)
	one, _ := s["additionalProperties"].(object)
	switch {
	case s["$ref"] != nil:
		name := strings.TrimPrefix(s["$ref"].(string), "#/$defs/")
		section := map[string]string{"broker": "brokers", "store": "stores", "handler": "handlers", "middleware": "middleware"}[name]
		require.NotEmpty(r.t, section, name)
		return fmt.Sprintf("[%s](#%s)", name, section)
	case s["enum"] != nil:
		words := []string{}
		for _, word := range s["enum"].([]any) {
			words = append(words, fmt.Sprintf("`%v`", word))
		}
		return strings.Join(words, ", ")
	case strings.Contains(pattern, "|ms|"):
		return "duration"
	case strings.Contains(pattern, "KiB"):
		return "size"
	case kind == "array":
		return "list of " + r.typeOf(s["items"].(object))
	case one != nil:
		return "map of names to " + r.typeOf(one)
	case kind == "object":
		return "map"
	case kind == "integer", kind == "number", kind == "boolean":
		return kind
	}
	require.Equal(r.t, []any{"string", "number", "boolean"}, s["type"], "a type that this page has no word for: %v", s)
	return "text"
}

// What a comment says of a default, as the schema reads it, and what the
// schema adds of limits.
var (
	defaulted = regexp.MustCompile(`(?:(?:^| )(?:Defaults to|Default:) (.+?)\.(?: |$)|; default (.+?)([.,])(?: |$))`)
	atLeast   = regexp.MustCompile(` ?At least (\S+)\.`)
	atMost    = regexp.MustCompile(` ?At most (\S+)\.`)
)

// meaning splits a description into the default, the limits, and the rest
// without the name that it begins with.
func (r *reference) meaning(name string, p object) (byDefault, limits, text string) {
	text, _ = p["description"].(string)
	require.NotEmpty(r.t, text, name)
	least, most := atLeast.FindStringSubmatch(text), atMost.FindStringSubmatch(text)
	switch {
	case least != nil && most != nil:
		limits = fmt.Sprintf(" from %s to %s", least[1], most[1])
	case least != nil:
		limits = " of at least " + least[1]
	case most != nil:
		limits = " of at most " + most[1]
	}
	text = atLeast.ReplaceAllString(atMost.ReplaceAllString(text, ""), "")
	byDefault = "–"
	if at := defaulted.FindStringSubmatchIndex(text); at != nil {
		m := defaulted.FindStringSubmatch(text)
		if byDefault = m[1] + m[2]; !strings.Contains(byDefault, " ") {
			byDefault = "`" + byDefault + "`"
		}
		text = strings.TrimSpace(text[:at[0]] + m[3] + " " + text[at[1]:])
	}
	if value, ok := p["default"]; ok {
		want := fmt.Sprint(value)
		if f, ok := value.(float64); ok {
			want = strconv.FormatFloat(f, 'f', -1, 64)
		}
		require.Equal(r.t, "`"+want+"`", byDefault, name)
	}
	for _, verb := range []string{" is ", " are "} {
		text = strings.TrimPrefix(text, name+verb)
	}
	return byDefault, limits, text
}

// field is a field of a struct as YAML calls it.
type field struct {
	name string
	of   reflect.Type
}

// fieldsOf gives the fields of a struct, or of what is pointed to; none of
// anything else.
func fieldsOf(t reflect.Type) (fields []field) {
	if t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil || t.Kind() != reflect.Struct {
		return nil
	}
	for f := range t.Fields() {
		name, inline, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		switch {
		case inline == "inline":
			fields = append(fields, fieldsOf(f.Type)...)
		case name != "" && name != "-":
			fields = append(fields, field{name, f.Type})
		}
	}
	return fields
}

// capital begins a text with a capital letter.
func capital(text string) string { return strings.ToUpper(text[:1]) + text[1:] }
