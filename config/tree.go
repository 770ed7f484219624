package config

import (
	"strconv"

	yaml "go.yaml.in/yaml/v4"
)

// maxDepth bounds how deep maps and lists may nest. A worker's file needs about eight.
const maxDepth = 40

type nodeKind int

const (
	scalarNode nodeKind = iota
	mapNode
	listNode
)

// node is a parsed value that knows where it came from, through every merge.
type node struct {
	kind     nodeKind
	value    string // of a scalar, without quotes
	plain    bool   // a scalar without quotes
	null     bool   // a plain scalar that is null
	referred bool   // a scalar whose text holds the value of a reference
	secret   bool   // below a key with a secret's name
	broken   bool   // reported already; nothing is to be made of it
	fields   []field
	items    []*node
	at       place
}

// field is one entry of a map, in the file's order.
type field struct {
	key   string
	at    place
	value *node
}

// get returns the value of a key, nil where there is none.
func (n *node) get(key string) *node {
	if n == nil {
		return nil
	}
	for _, f := range n.fields {
		if f.key == key {
			return f.value
		}
	}
	return nil
}

// converter turns the YAML library's nodes into ours and refuses what a worker's file may not hold.
type converter struct {
	*report
	src *source
}

func (c *converter) node(y *yaml.Node, path string, depth int) *node {
	n := &node{at: place{c.src, y.Line, y.Column}, broken: true}
	if depth > maxDepth {
		c.add(n.at, path, "nested deeper than %d levels", maxDepth)
		return n
	}
	if y.Anchor != "" || y.Kind == yaml.AliasNode {
		c.add(n.at, path, "anchors and aliases (&, *) are refused; write the value out, or use `defaults:`")
		return n
	}
	if y.Style&yaml.TaggedStyle != 0 {
		c.add(n.at, path, "tags (!) are refused; write the plain value")
		return n
	}
	n.broken = false
	switch y.Kind {
	case yaml.MappingNode:
		n.kind = mapNode
		c.fields(n, y, path, depth)
	case yaml.SequenceNode:
		n.kind = listNode
		for i, item := range y.Content {
			n.items = append(n.items, c.node(item, element(path, i), depth+1))
		}
	case yaml.ScalarNode, yaml.AliasNode, yaml.DocumentNode, yaml.StreamNode: // only scalars are left
		n.value = y.Value
		n.plain = y.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) == 0
		n.null = n.plain && y.ShortTag() == "!!null"
	}
	return n
}

func (c *converter) fields(n *node, y *yaml.Node, path string, depth int) {
	seen := map[string]int{}
	for i := 0; i+1 < len(y.Content); i += 2 {
		key := y.Content[i]
		at := place{c.src, key.Line, key.Column}
		switch {
		case key.Tag == "!!merge":
			c.add(at, path, "merge keys (<<) are refused; write the keys out, or use `defaults:`")
			n.broken = true // what it lacks may be what was to be merged
			continue
		case key.Kind == yaml.AliasNode || key.Anchor != "":
			c.add(at, path, "anchors and aliases (&, *) are refused; write the key out")
			continue
		case key.Kind != yaml.ScalarNode:
			c.add(at, path, "a key must be a plain word, not a map or a list")
			continue
		}
		here := child(path, key.Value)
		if line, twice := seen[key.Value]; twice {
			c.add(at, here, "key %q is there twice; the first is on line %d", key.Value, line)
			continue
		}
		seen[key.Value] = key.Line
		value := c.node(y.Content[i+1], here, depth+1)
		n.fields = append(n.fields, field{key: key.Value, at: at, value: value})
	}
}

// markAllSecrets is markSecrets for a whole file, where a consumer or broker may well be called password-reset.
func markAllSecrets(root *node) {
	for _, section := range root.fields {
		if !namesEntries(section.key) {
			markSecrets(section.value, secretName(section.key))
			continue
		}
		for _, entry := range section.value.fields {
			markSecrets(entry.value, false)
		}
	}
}

// namesEntries says whether the keys below a key of the top level are names that the user gives.
func namesEntries(key string) bool { return key == "consumers" || key == "brokers" }

// markSecrets notes which scalars stand below a key with a secret's name, so that no message quotes them.
func markSecrets(n *node, below bool) {
	n.secret = below
	for _, f := range n.fields {
		markSecrets(f.value, below || secretName(f.key))
	}
	for _, item := range n.items {
		markSecrets(item, below)
	}
}

func child(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func element(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }
