package config

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Parts are what [Schema] needs to know besides the shape of the file.
type Parts struct {
	Transports, Stores []Part // a file can name no others
	// Handlers and Middleware are open: a name that is not here is taken for one of another program.
	Handlers, Middleware []Part
	// Docs describe fields, by "import/path.Type.Field". What such a text says of a default ("Defaults to 8.",
	// "Default: 8.", "; default 8.") becomes the default.
	Docs map[string]string
}

// Part is one thing that a component can be.
type Part struct {
	// Kind is the word, the key of the map, or the scheme of the URL.
	Kind string
	// Schemes are further ones.
	Schemes []string
	Doc     string
	// Options points to the struct that [Component.Decode] fills; to an empty one where there are no options. Nil means
	// that they are not known, and any are taken.
	Options any
}

// Schema returns the JSON Schema (2020-12, in keywords that readers of draft 7 know too) of a whole file.
//
// It comes from the structs that the decoder fills, and takes what the decoder takes, with two differences:
// a key without a value is refused, since it is a slip more often than not, and what [Component.Decode]
// and Validate methods look at is left to them. A reference (${VAR}) may stand wherever one value may.
func Schema(p Parts) ([]byte, error) {
	s := &schemer{docs: p.Docs}
	root := s.structure(reflect.ValueOf(newConfig(nil)).Elem())
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["title"] = "Leat worker"
	root["description"] = "The file of a worker."
	root["required"] = []string{"consumers"}
	root["properties"].(object)["brokers"].(object)["propertyNames"] = object{"pattern": entryName.String()}
	root["anyOf"] = []object{{"required": []string{"broker"}}, {"required": []string{"brokers"}}}
	root["$defs"] = object{
		"reference":  object{"type": "string", "pattern": referencePattern, "description": "A reference: ${VAR}, ${VAR:-default}, ${VAR:?message} or ${file:PATH}."},
		"broker":     s.component(p.Transports, true),
		"store":      s.component(p.Stores, true),
		"handler":    s.component(p.Handlers, false),
		"middleware": s.component(p.Middleware, false),
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(root)
	return out.Bytes(), err
}

// object is a schema.
type object = map[string]any

const (
	referencePattern = `\$\{`
	numberPattern    = `([0-9]+(\.[0-9]*)?|\.[0-9]+)`
	durationPattern  = `^(` + numberPattern + `(ns|us|µs|μs|ms|s|m|h))+$|` + referencePattern
)

// schemer makes schemas of Go values, as [decoder] fills them.
type schemer struct {
	docs   map[string]string
	slot   string // what the option of the file that is being described takes, where that is a component
	inside bool   // a part's options, whose components are no business of the file
}

// slots says which component an option of the file takes.
var slots = map[string]string{
	"broker": "broker", "brokers": "broker", "store": "store", "handler": "handler", "wrap": "middleware", "use": "middleware",
}

// nodeSchemer is implemented by our own types that may be written in more than one shape.
type nodeSchemer interface {
	schema(s *schemer) object
}

func (s *schemer) value(v reflect.Value, tag reflect.StructTag) object {
	if custom, ok := reflect.TypeAssert[nodeSchemer](v.Addr()); ok {
		return custom.schema(s)
	}
	switch {
	case v.Kind() == reflect.Pointer && v.Type().Elem().Kind() == reflect.Struct && v.Type() != reflect.PointerTo(secretType):
		return anyOf(s.structure(reflect.New(v.Type().Elem()).Elem()), enum("off"), reference())
	case v.Kind() == reflect.Struct && v.Type() != secretType && !isText(v):
		return s.structure(v)
	case v.Kind() == reflect.Slice && !isText(v):
		return object{"type": "array", "items": s.element(v)}
	case v.Kind() == reflect.Map:
		return object{"type": "object", "additionalProperties": s.element(v)}
	case v.Kind() == reflect.Interface && v.NumMethod() == 0:
		return object{}
	}
	return scalarSchema(v, tag)
}

func (s *schemer) element(v reflect.Value) object {
	return s.value(reflect.New(v.Type().Elem()).Elem(), "")
}

func (s *schemer) structure(v reflect.Value) object {
	known := options(v)
	properties := make(object, len(known))
	var required []string
	for _, o := range known {
		if slot := slots[o.name]; slot != "" && !s.inside {
			s.slot = slot
		}
		p := s.value(o.value, o.tag)
		s.describe(p, o)
		properties[o.name] = p
		if o.tag.Get("required") != "" {
			required = append(required, o.name)
		}
	}
	out := object{"type": "object", "properties": properties, "additionalProperties": false}
	if required != nil {
		out["required"] = required
	}
	return out
}

// describe adds what a field's documentation says, and limits that a schema can't hold.
func (s *schemer) describe(p object, o option) {
	doc := s.docs[o.owner.PkgPath()+"."+o.owner.Name()+"."+o.field]
	if value, ok := defaultOf(doc, o.value); ok {
		p["default"] = value
	}
	if _, numeric := p["minimum"]; !numeric {
		for _, bound := range []struct{ tag, words string }{{"min", " At least "}, {"max", " At most "}} {
			if limit := o.tag.Get(bound.tag); limit != "" {
				doc += bound.words + limit + "."
			}
		}
	}
	if doc = strings.TrimSpace(doc); doc != "" {
		p["description"] = doc
	}
}

var documentedDefault = regexp.MustCompile(`(?:Defaults to|Default:|default) (\S+?)(?:[,;]|\.?$|\.\s)`)

// defaultOf reads the default out of a field's documentation, where that names a value of the field's type.
func defaultOf(doc string, v reflect.Value) (any, bool) {
	m := documentedDefault.FindStringSubmatch(doc)
	if m == nil {
		return nil, false
	}
	var err error
	var value any = m[1]
	switch {
	case v.Type() == stdDurationType || v.Type() == reflect.TypeFor[Duration]():
		_, err = ParseDuration(m[1])
	case v.Type() == reflect.TypeFor[Size]():
		_, err = ParseSize(m[1])
	case v.Kind() == reflect.String:
	case v.Kind() == reflect.Bool:
		value, err = strconv.ParseBool(m[1])
	case v.CanInt() || v.CanUint():
		value, err = strconv.ParseInt(m[1], 10, 64)
	case v.CanFloat():
		value, err = strconv.ParseFloat(m[1], 64)
	default:
		return nil, false
	}
	return value, err == nil
}

// scalarSchema is the schema of one value, which a reference may stand for.
func scalarSchema(v reflect.Value, tag reflect.StructTag) object {
	switch {
	case v.Type() == stdDurationType || v.Type() == reflect.TypeFor[Duration]():
		return object{"type": "string", "pattern": durationPattern}
	case v.Type() == reflect.TypeFor[Size]():
		return object{"type": "string", "pattern": sizePattern()}
	case tag.Get("enum") != "":
		return anyOf(enum(strings.Split(tag.Get("enum"), ",")...), reference())
	case v.Kind() == reflect.Bool:
		return anyOf(object{"type": "boolean"}, reference())
	case isText(v) || !v.CanInt() && !v.CanUint() && !v.CanFloat():
		return plainText()
	}
	number := object{"type": "number"}
	if !v.CanFloat() {
		number["type"] = "integer"
	}
	for tagged, keyword := range map[string]string{"min": "minimum", "max": "maximum"} {
		if limited := tag.Get(tagged); limited != "" {
			number[keyword] = limit(limited)
		}
	}
	return anyOf(number, reference())
}

// plainText takes any one value, since 12345 is a good text to the decoder.
func plainText() object { return object{"type": []string{"string", "number", "boolean"}} }

func pattern(expression string) object {
	return object{"type": "string", "pattern": expression + "|" + referencePattern}
}

func enum(words ...string) object { return object{"enum": words} }

func reference() object { return object{"$ref": "#/$defs/reference"} }

func anyOf(schemas ...object) object { return object{"anyOf": schemas} }

func sizePattern() string {
	units := make([]string, len(sizeUnits))
	for i, unit := range sizeUnits {
		units[i] = unit.name
	}
	return `^` + numberPattern + `(` + strings.Join(units, "|") + `)$|` + referencePattern
}

// component is the schema of one slot: a word, a URL where the slot takes any, or a map of one key.
func (s *schemer) component(parts []Part, closed bool) object {
	words := []object{}
	properties := object{}
	var kinds []string
	for _, part := range parts {
		for _, kind := range append([]string{part.Kind}, part.Schemes...) {
			kinds = append(kinds, regexp.QuoteMeta(kind))
			words = append(words, object{"const": kind, "description": part.Doc})
			properties[kind] = s.partOptions(part)
		}
	}
	word := pattern(kindName.String())
	if closed {
		word = pattern(`^(` + strings.Join(kinds, "|") + `)($|://)`)
	}
	one := object{"type": "object", "properties": properties, "minProperties": 1, "maxProperties": 1, "additionalProperties": false}
	if !closed {
		one["additionalProperties"] = object{"type": "object"}
	}
	return anyOf(slices.Concat(words, []object{word, one})...)
}

func (s *schemer) partOptions(part Part) object {
	out := object{"type": "object"}
	if part.Options != nil {
		inner := &schemer{docs: s.docs, inside: true}
		out = inner.structure(reflect.New(reflect.TypeOf(part.Options).Elem()).Elem())
	}
	out["description"] = part.Doc
	return out
}

func (c *Component) schema(s *schemer) object {
	if s.slot == "" {
		return anyOf(plainText(), object{"type": "object", "minProperties": 1, "maxProperties": 1})
	}
	return object{"$ref": "#/$defs/" + s.slot}
}

func (c *Consumers) schema(s *schemer) object {
	consumer := s.structure(reflect.New(reflect.TypeFor[Consumer]()).Elem())
	consumer["required"] = []string{"handler"}
	consumer["oneOf"] = []object{{"required": []string{"topic"}}, {"required": []string{"topics"}}}
	topics := maps.Clone(consumer["properties"].(object)["topics"].(object))
	topics["minItems"] = 1
	consumer["properties"].(object)["topics"] = topics
	return object{
		"type": "object", "minProperties": 1, "propertyNames": object{"pattern": entryName.String()}, "additionalProperties": consumer,
	}
}

func (p *PublishTo) schema(s *schemer) object {
	return anyOf(plainText(), s.structure(reflect.ValueOf(p).Elem()))
}

func (o *OrderedBy) schema(s *schemer) object {
	modes := enum(OrderedByKey, OrderedByPartition, OrderedByNone)
	return anyOf(modes, s.structure(reflect.New(reflect.TypeFor[orderedBy]()).Elem()), reference())
}
