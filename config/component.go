package config

import (
	"cmp"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strings"
)

// Component is one pluggable part as the file names it: a word (log), a URL (kafka://h1:9092), or one key with its options
// under it ({kafka: {brokers: [...]}}). The package that owns the kind decodes the options.
// The zero Component is one that the file does not mention. It formats as its kind, or as its URL without credentials.
type Component struct {
	// Kind is the word, the scheme of the URL, or the key.
	Kind string
	// URL is the whole text where the component was written as a URL, else empty.
	URL Secret
	// Dir is the folder of the file that mentions the component: what relative paths in it are relative to.
	Dir string

	path    string // of the component
	node    *node  // the whole, for positions
	options *node  // below the kind, nil where there are none
}

// IsZero says whether the file does not mention the component.
func (c Component) IsZero() bool { return c.Kind == "" }

// Path is where the component stands: broker, consumers.charge.handler, defaults.use[0].
func (c Component) Path() string { return c.path }

// String is the URL with its credentials masked, or the kind.
func (c Component) String() string {
	if !c.URL.IsZero() {
		return maskWhole(c.URL.Reveal())
	}
	return c.Kind
}

// Format writes what String returns for every verb, so that no dump of a struct shows an option.
func (c Component) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, c.String()) }

// Decode fills the struct that into points to from the options, over the defaults it holds already.
// Its error is an [*Error] with every problem at its position: unknown keys, wrong types, and what the struct's own
// Validate() error says (see [OptionErrorf]). A word has no options, so what is required is missing; a URL
// stands for the options, which are then only validated.
//
// Fields are named by yaml tags and may be structs, pointers to structs (the word off makes them nil), slices, maps with
// string keys, scalars, any, [Duration] or [time.Duration], [Size], [Secret], [Component] and what implements
// encoding.TextUnmarshaler; they are checked by the tags `enum:"a,b"`, `min:"1"`, `max:"10s"`, `required:"true"`.
// A struct behind a pointer, in a slice or in a map gets its defaults from its method SetDefaults(), if it has one.
// A field of another type is a mistake in the program and panics.
//
// Components of one Config must not be decoded concurrently.
func (c Component) Decode(into any) error {
	var r report
	d := newDecoder(&r)
	v := reflect.ValueOf(into).Elem()
	switch n, path := c.options, child(c.path, c.Kind); {
	case n != nil:
		d.structure(n, v, path)
	case !c.URL.IsZero():
		d.validate(c.at(), v, c.path)
	default:
		d.structure(&node{kind: mapNode, at: c.at().at}, v, path)
	}
	return r.err()
}

// Errorf makes an [*Error] at the component, or at one of its options where option is its path below the kind.
// The message is printed: URLs in it are masked, and values of references and secrets of the component taken out.
func (c Component) Errorf(option, format string, args ...any) error {
	var r report
	d := newDecoder(&r)
	at, path := c.options, child(c.path, c.Kind)
	if at == nil {
		at = c.at()
	}
	if !c.URL.IsZero() {
		path = c.path
	}
	if option == "" {
		r.add(at.at, path, "%s", redact(at, fmt.Sprintf(format, args...)))
	} else {
		d.place(at, path, OptionErrorf(option, format, args...))
	}
	return r.err()
}

// at is the node of the component, an empty one where it was made in code.
func (c Component) at() *node {
	if c.node == nil {
		return &node{}
	}
	return c.node
}

// identity is equal for two components that are written alike, wherever they stand.
func (c Component) identity() string {
	if c.options == nil {
		return cmp.Or(c.URL.Reveal(), c.Kind)
	}
	return fmt.Sprint(c.Kind, plainValue(c.options)) // maps print in order of their keys
}

func (c *Component) decodeNode(d *decoder, n *node, path string) {
	*c = Component{path: path, node: n, Dir: n.at.src.dir}
	switch {
	case n.kind == scalarNode:
		scheme, _, isURL := strings.Cut(n.value, "://")
		if !kindName.MatchString(scheme) {
			d.add(n.at, path, "%s: %s is not a component; write a name, a URL, or one key with its options under it", path, describe(n))
			return
		}
		if c.Kind = scheme; isURL {
			c.Kind, c.URL = strings.ToLower(scheme), NewSecret(n.value)
		}
	case n.kind == mapNode && len(n.fields) == 1:
		f := n.fields[0]
		if !kindName.MatchString(f.key) {
			d.add(f.at, path, "%s: %q is not the name of a component; write one key with its options under it", path, clip(f.key))
			return
		}
		c.Kind, c.node = f.key, &node{at: f.at, kind: mapNode}
		if f.value.null || f.value.broken {
			return
		}
		if f.value.kind != mapNode {
			d.add(f.value.at, child(path, f.key), "%s: %s where a map of options is due; write {%s: {option: value}}",
				child(path, f.key), describe(f.value), clip(f.key))
			return
		}
		c.options = f.value
	case n.kind == mapNode:
		d.add(n.at, path, "%s: a component is one key with its options under it, not %d keys", path, len(n.fields))
	default:
		d.add(n.at, path, "%s: a list where a component is due; write a name, a URL, or one key with its options under it", path)
	}
}

// kindName keeps a text that is no name, and may be a connection string, out of Kind, which is printed.
var kindName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.+-]*$`)
