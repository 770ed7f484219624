package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
)

// decoder fills Go values from nodes, over what they hold already: a key that is absent, null or broken leaves its field alone.
//
// What it takes is told by [Component.Decode]. Validate is asked of a struct only after it decoded without a problem, so that
// it never speaks of a value that is not the file's.
type decoder struct {
	*report
	meant map[string]bool // paths that an unknown key was probably meant for, so that they are not also called missing
}

func newDecoder(r *report) *decoder { return &decoder{report: r, meant: map[string]bool{}} }

// nodeDecoder is implemented by our own types that may be written in more than one shape.
type nodeDecoder interface {
	decodeNode(d *decoder, n *node, path string)
}

var (
	stdDurationType = reflect.TypeFor[time.Duration]()
	secretType      = reflect.TypeFor[Secret]()
)

// value decodes n into v, which can be set.
func (d *decoder) value(n *node, v reflect.Value, tag reflect.StructTag, path string) {
	if n.null || n.broken {
		return
	}
	if custom, ok := reflect.TypeAssert[nodeDecoder](v.Addr()); ok {
		custom.decodeNode(d, n, path)
		return
	}
	switch {
	case v.Kind() == reflect.Pointer && v.Type().Elem().Kind() == reflect.Struct && v.Type() != reflect.PointerTo(secretType):
		d.pointer(n, v, path)
	case v.Kind() == reflect.Struct && v.Type() != secretType && !isText(v):
		d.structure(n, v, path)
	case v.Kind() == reflect.Slice && !isText(v):
		d.slice(n, v, path)
	case v.Kind() == reflect.Map:
		d.mapping(n, v, path)
	case v.Kind() == reflect.Interface && v.NumMethod() == 0:
		v.Set(reflect.ValueOf(plainValue(n)))
	case n.kind != scalarNode:
		d.add(n.at, path, "%s: %s where one value is due", path, describe(n))
	default:
		d.scalar(n, v, tag, path)
	}
}

// pointer decodes an optional struct. It decodes into a copy, since the one there may be shared with the defaults.
func (d *decoder) pointer(n *node, v reflect.Value, path string) {
	if n.kind == scalarNode && n.value == "off" {
		v.SetZero()
		return
	}
	fresh := reflect.New(v.Type().Elem())
	if v.IsNil() {
		setDefaults(fresh)
	} else {
		fresh.Elem().Set(v.Elem())
	}
	d.value(n, fresh.Elem(), "", path)
	v.Set(fresh)
}

func (d *decoder) slice(n *node, v reflect.Value, path string) {
	if n.kind != listNode {
		d.add(n.at, path, "%s: %s where a list is due; write [a, b]", path, describe(n))
		return
	}
	out := reflect.MakeSlice(v.Type(), len(n.items), len(n.items))
	for i, item := range n.items {
		if item.null {
			d.add(item.at, path, "%s: nothing where an element is due", element(path, i))
			continue
		}
		setDefaults(out.Index(i).Addr())
		d.value(item, out.Index(i), "", element(path, i))
	}
	v.Set(out)
}

func (d *decoder) mapping(n *node, v reflect.Value, path string) {
	if n.kind != mapNode {
		d.add(n.at, path, "%s: %s where a map is due; write key: value", path, describe(n))
		return
	}
	out := reflect.MakeMapWithSize(v.Type(), len(n.fields))
	for _, f := range n.fields {
		if f.value.null && v.Type().Elem().Kind() != reflect.Interface {
			d.add(f.value.at, child(path, f.key), "%s: nothing where a value is due", child(path, f.key))
			continue
		}
		element := reflect.New(v.Type().Elem())
		setDefaults(element)
		d.value(f.value, element.Elem(), "", child(path, f.key))
		out.SetMapIndex(reflect.ValueOf(f.key).Convert(v.Type().Key()), element.Elem())
	}
	v.Set(out)
}

// option is one field of a struct as the file names it.
type option struct {
	name  string
	value reflect.Value
	tag   reflect.StructTag
	owner reflect.Type // the struct that has the field
	field string       // its name in Go
}

// options lists the fields of a struct that the file can set, inlined ones included.
func options(v reflect.Value) []option {
	var out []option
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name, flags, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		switch {
		case flags == "inline":
			out = append(out, options(v.Field(i))...)
		case f.IsExported() && name != "-" && name != "":
			out = append(out, option{name, v.Field(i), f.Tag, v.Type(), f.Name})
		}
	}
	return out
}

// mapFor is the map that was probably meant by what stands in its place: a word that one option takes, or true.
func mapFor(n *node, known []option) string {
	if n.kind != scalarNode || n.referred || n.secret {
		return "key: value"
	}
	required := false
	for _, o := range known {
		if slices.Contains(strings.Split(o.tag.Get("enum"), ","), n.value) {
			return fmt.Sprintf("{%s: %s}", o.name, n.value)
		}
		required = required || o.tag.Get("required") != ""
	}
	if !required && slices.Contains([]string{"true", "on", "yes"}, n.value) {
		return "{} for the defaults, or {key: value}"
	}
	return "key: value"
}

func (d *decoder) structure(n *node, v reflect.Value, path string) {
	if n.kind != mapNode {
		d.add(n.at, path, "%s: %s where a map is due; write %s", path, describe(n), mapFor(n, options(v)))
		return
	}
	before := len(d.problems)
	known := options(v)
	names := make([]string, len(known))
	byName := make(map[string]option, len(known))
	for i, o := range known {
		names[i], byName[o.name] = o.name, o
	}
	for _, f := range n.fields {
		if o, ok := byName[f.key]; ok {
			d.hide(f.value, o.value)
			d.value(f.value, o.value, o.tag, child(path, f.key))
			continue
		}
		if o, ok := byName[nearest(f.key, names)]; ok {
			d.hide(f.value, o.value)
			d.meant[child(path, o.name)] = true
		}
		where := " under " + path
		if path == "" {
			where = " at the top level"
		}
		d.add(f.at, child(path, f.key), "unknown key %q%s%s", clip(f.key), where, suggestion(f.key, names))
	}
	for _, o := range known {
		if o.tag.Get("required") != "" {
			d.missing(n, o.name, n.at, child(path, o.name), "%s is missing", child(path, o.name))
		}
	}
	if len(d.problems) == before {
		d.validate(n, v, path)
	}
}

// missing reports a key that n must have, unless an unknown key was probably meant for it.
func (d *decoder) missing(n *node, key string, at place, path, format string, args ...any) {
	if !has(n, key) && !d.meant[path] {
		d.add(at, path, format, args...)
	}
}

func has(n *node, key string) bool {
	value := n.get(key)
	return value != nil && !value.null
}

// hide masks the source line of a value that goes into a Secret, whatever its key is called.
func (d *decoder) hide(n *node, into reflect.Value) {
	if into.Type() == secretType && n.kind == scalarNode {
		n.secret = true
		n.at.hide()
	}
}

// validate asks the struct itself, and places what it says.
func (d *decoder) validate(n *node, v reflect.Value, path string) {
	if asked, ok := reflect.TypeAssert[interface{ Validate() error }](v.Addr()); ok {
		d.place(n, path, asked.Validate())
	}
}

// place reports an error of an owner at the option it names.
func (d *decoder) place(n *node, path string, err error) {
	switch e := err.(type) { //nolint:errorlint // each layer is looked at in turn
	case nil:
	case *fieldError:
		at, option := n, path
		for key := range strings.SplitSeq(e.option, ".") {
			if option = child(option, key); at.get(key) != nil {
				at = at.get(key)
			}
		}
		d.add(at.at, option, "%s: %s", option, redact(n, e.message))
	case interface{ Unwrap() []error }:
		for _, one := range e.Unwrap() {
			d.place(n, path, one)
		}
	default:
		d.add(n.at, path, "%s: %s", path, redact(n, err.Error()))
	}
}

// fieldError is an error about one option.
type fieldError struct{ option, message string }

func (e *fieldError) Error() string { return e.option + ": " + e.message }

// OptionErrorf makes an error about one option, for a Validate method to return, alone or by errors.Join. The option is its
// path below the struct: "tls.ca_file". The message is printed: URLs in it are masked, and values of references and secrets
// below the struct taken out.
func OptionErrorf(option, format string, args ...any) error {
	return &fieldError{option, fmt.Sprintf(format, args...)}
}

func setDefaults(pointer reflect.Value) {
	if s, ok := reflect.TypeAssert[interface{ SetDefaults() }](pointer); ok {
		s.SetDefaults()
	}
}
