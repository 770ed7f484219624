package config

import (
	"errors"
	"slices"
	"strings"
)

// merge lays over on base: maps merge, scalars and lists replace, null deletes.
// A component of another kind replaces: a file with {amqp: …} takes the place of {kafka: …} instead of standing beside it.
func merge(base, over *node, path []string) *node {
	if base == nil || base.kind != mapNode || over.kind != mapNode || isComponent(path) && otherKind(base, over) {
		return over
	}
	out := *over
	out.fields = nil
	// A key of both stays where the base has it, so that consumers keep their order.
	for _, f := range base.fields {
		switch o := over.get(f.key); {
		case o == nil:
			out.fields = append(out.fields, f)
		case !o.null:
			value := merge(f.value, o, append(slices.Clip(path), f.key))
			out.fields = append(out.fields, field{f.key, keyPlace(over, f.key), value})
		}
	}
	for _, f := range over.fields {
		if base.get(f.key) == nil && !f.value.null {
			out.fields = append(out.fields, f)
		}
	}
	return &out
}

func keyPlace(n *node, key string) place {
	for _, f := range n.fields {
		if f.key == key {
			return f.at
		}
	}
	return n.at
}

// isComponent says whether a component stands at a path.
func isComponent(path []string) bool {
	switch len(path) {
	case 1:
		return path[0] == "broker" || path[0] == "store"
	case 2:
		return path[0] == "brokers"
	case 3:
		return path[0] == "consumers" && path[2] == "handler"
	}
	return false
}

func otherKind(a, b *node) bool {
	return len(a.fields) == 1 && len(b.fields) == 1 && a.fields[0].key != b.fields[0].key
}

// parseSet makes a tree of one overlay "path.to.key=value". The value is YAML on one line: a scalar, [a, b] or {a: b}.
// A key that holds a dot stands in double quotes: consumers."a.b".timeout=5s. An empty value is the empty text.
func parseSet(set string, r *report) *node {
	path, value, found := strings.Cut(set, "=")
	src := &source{name: "--set " + path, dir: "."}
	at := place{src: src}
	keys, err := splitPath(path)
	if err == nil && !found {
		err = errors.New("no value; write --set path.to.key=value")
	}
	if err != nil {
		r.add(at, "", "%s", err)
		return nil
	}
	n := &node{at: at}
	if value != "" {
		var own report
		parsed := parse(src.name, src.dir, []byte("value: "+value), &own)
		if parsed == nil || len(own.problems) > 0 || len(parsed.fields) != 1 {
			r.add(at, path, "the value is not one line of YAML: a word, a number, [a, b] or {a: b}; quote what holds \": \" or \" #\"")
			return nil
		}
		n = parsed.fields[0].value
		relocate(n, at)
	}
	for _, key := range slices.Backward(keys) {
		n = &node{kind: mapNode, at: at, fields: []field{{key, at, n}}}
	}
	return n
}

// relocate gives a tree one place, since a value on the command line has no lines.
func relocate(n *node, at place) {
	n.at = at
	for i := range n.fields {
		n.fields[i].at = at
		relocate(n.fields[i].value, at)
	}
	for _, item := range n.items {
		relocate(item, at)
	}
}

func splitPath(path string) ([]string, error) {
	var keys []string
	for rest := path; ; {
		var key, after string
		if quoted, ok := strings.CutPrefix(rest, `"`); ok {
			if key, after, ok = strings.Cut(quoted, `"`); !ok {
				return nil, errors.New("a quote in the path that is never closed")
			}
		} else if dot := strings.IndexByte(rest, '.'); dot >= 0 {
			key, after = rest[:dot], rest[dot:]
		} else {
			key = rest
		}
		if key == "" || after != "" && after[0] != '.' {
			return nil, errors.New("not a path; write --set path.to.key=value")
		}
		if keys = append(keys, key); len(keys) > maxDepth {
			return nil, errors.New("a path far too deep")
		}
		if after == "" {
			return keys, nil
		}
		rest = after[1:]
	}
}
