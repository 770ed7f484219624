package config

import (
	"errors"
	"strings"
	"unicode/utf8"

	yaml "go.yaml.in/yaml/v4"
)

const bom = "\ufeff"

// parse reads one text. It returns nil where the text has no usable tree; then it has reported why.
// A UTF-8 byte order mark is skipped.
func parse(name, dir string, data []byte, r *report) *node {
	text := strings.TrimPrefix(string(data), bom)
	src := newSource(name, dir, text)
	if line, col, message := unreadable(text); message != "" {
		r.add(place{src, line, col}, "", "%s", message)
		return nil
	}
	var document yaml.Node
	if err := yaml.Load([]byte(text), &document); err != nil {
		at, message := syntax(src, err)
		r.add(at, "", "%s", message)
		return nil
	}
	root := document.Content[0]
	if root.Kind != yaml.MappingNode {
		r.add(place{src, root.Line, root.Column}, "", "the file must be a map of keys, like `broker: sqlite://worker.db`")
		return nil
	}
	return (&converter{r, src}).node(root, "", 0)
}

// unreadable finds the first byte that no YAML text may hold.
func unreadable(text string) (line, col int, message string) {
	line, col = 1, 1
	for i, r := range text {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(text[i:], "\ufffd"):
			return line, col, "not UTF-8 text; save the file as UTF-8"
		case r == 0xFEFF, r < ' ' && r != '\n' && r != '\r' && r != '\t', r == 0x7F, r > 0x7F && r < 0xA0 && r != 0x85:
			return line, col, "a control character; take it out, or write it as an escape in double quotes"
		case r == '\n':
			line, col = line+1, 0
		}
		col++
	}
	return 0, 0, ""
}

// syntax puts an error of the YAML library into words that say what to change.
func syntax(src *source, err error) (place, string) {
	le, ok := errors.AsType[*yaml.LoadError](err)
	if !ok {
		return place{src, 0, 0}, "not YAML"
	}
	at := place{src, le.Mark.Line, le.Mark.Column}
	if le.ContextMark.Line > 0 && at.line > len(src.lines)-1 {
		at = place{src, le.ContextMark.Line, le.ContextMark.Column} // an unclosed quote is found at the end of the file
	}
	line := ""
	if at.line >= 1 && at.line <= len(src.lines) {
		line = src.lines[at.line-1]
	}
	message := le.Message
	has := func(part string) bool { return strings.Contains(message, part) }
	switch {
	case has("no documents in stream"):
		return place{src, 0, 0}, "the file is empty; it needs at least `broker:` and `consumers:`"
	case has("found multiple"):
		return secondDocument(src), "a second document (---); a worker's file has one"
	case has("unknown anchor"):
		return at, "anchors and aliases (&, *) are refused; write the value out, or quote it if it begins with *"
	case has("max depth"):
		return at, "nested far too deep"
	case strings.Contains(line, "${") && (has("',' or") || has("mapping values") || has("expected key")):
		return at, `a reference inside {…} or […], or one that holds ": ", needs quotes: key: "${VAR}"`
	case has("cannot start any token") && strings.HasPrefix(strings.TrimLeft(line, " "), "\t"):
		return at, "a tab in the indentation; YAML indents with spaces"
	case has("cannot start any token"):
		return at, "a value can't begin with this character; quote it"
	case has("mapping values are not allowed"):
		return at, `a second ": " on one line; quote the value, or begin a new line`
	case has("did not find expected key"):
		return at, "no key where one is due; compare the indentation with the lines above"
	case has("could not find expected ':'"):
		return at, `a line without ": "; write key: value`
	case has("end of stream"):
		return at, "a quote that is never closed"
	case has("',' or"), has("expected node content"):
		return at, "a list or map in brackets that is never closed, or lacks a comma or a value"
	}
	return at, "not YAML: " + message
}

// secondDocument finds the line that begins a second document.
func secondDocument(src *source) place {
	content := false
	for i, line := range src.lines {
		marker := line == "---" || strings.HasPrefix(line, "--- ")
		if marker && content {
			return place{src, i + 1, 1}
		}
		trimmed := strings.TrimSpace(line)
		content = content || marker || trimmed != "" && trimmed[0] != '#' && trimmed[0] != '%'
	}
	return place{src, 0, 0}
}
