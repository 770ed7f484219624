package config

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
)

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// expander replaces references in scalar values:
//
//	${VAR}           the variable; an error where it is not set
//	${VAR:-default}  the default where it is not set or empty
//	${VAR:?message}  an error with this message where it is not set or empty
//	${file:PATH}     the file without one trailing newline; PATH is relative to the folder of the YAML file
//	$${              a literal ${
//
// A $ before anything else is itself. What a reference gives is not looked at again, and can only be a scalar: one that
// stands without quotes may become a number or true, but never a map, a list or null.
type expander struct {
	*report
	lookup   func(string) (string, bool)
	readFile func(string) ([]byte, error)
}

func (e *expander) node(n *node, path string) {
	for _, f := range n.fields {
		e.node(f.value, child(path, f.key))
	}
	for i, item := range n.items {
		e.node(item, element(path, i))
	}
	if n.kind == scalarNode && strings.Contains(n.value, "${") {
		text, referred, err := e.expand(n.value, n.at.src.dir)
		if err != nil {
			e.add(n.at, path, "%s", err)
			n.broken = true
		}
		n.value, n.referred = text, referred
	}
}

// expand returns the text with its references replaced, and whether there was one.
func (e *expander) expand(text, dir string) (out string, referred bool, err error) {
	var b strings.Builder
	for {
		i := strings.Index(text, "${")
		if i < 0 {
			b.WriteString(text)
			return b.String(), referred, nil
		}
		if i > 0 && text[i-1] == '$' {
			b.WriteString(text[:i-1] + "${")
			text = text[i+2:]
			continue
		}
		b.WriteString(text[:i])
		body, rest, closed := strings.Cut(text[i+2:], "}")
		if !closed {
			return "", true, fmt.Errorf("a ${ without its }; write ${VAR}, or $${ for a literal ${")
		}
		value, err := e.resolve(body, dir)
		if err != nil {
			return "", true, err
		}
		b.WriteString(value)
		text, referred = rest, true
	}
}

// resolve returns what the reference ${body} stands for.
func (e *expander) resolve(body, dir string) (string, error) {
	if path, ok := strings.CutPrefix(body, "file:"); ok {
		return e.file(path, dir)
	}
	name, fallback, hasFallback := strings.Cut(body, ":-")
	message := ""
	hasMessage := false
	if !hasFallback || strings.Contains(name, ":?") {
		name, message, hasMessage = strings.Cut(body, ":?")
		hasFallback = false
	}
	switch {
	case strings.Contains(body, "${"):
		return "", fmt.Errorf("a reference inside a reference; a default or message is plain text")
	case !variableName.MatchString(name):
		return "", fmt.Errorf("not a reference; write ${VAR}, ${VAR:-default}, ${VAR:?message} or ${file:PATH}, and $${ for a literal ${")
	}
	value, set := e.lookup(name)
	switch {
	case hasFallback && value == "":
		return fallback, nil
	case hasMessage && value == "" && strings.TrimSpace(message) != "":
		return "", fmt.Errorf("environment variable %s: %s", name, strings.TrimSpace(message))
	case hasMessage && value == "":
		return "", fmt.Errorf("environment variable %s is not set or empty; set it", name)
	case !set:
		return "", fmt.Errorf("environment variable %s is not set; set it, or give a default: ${%s:-default}", name, name)
	}
	return value, nil
}

func (e *expander) file(path, dir string) (string, error) {
	if path == "" {
		return "", fmt.Errorf("a file reference without a path; write ${file:PATH}")
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	data, err := e.readFile(path)
	switch {
	case err != nil:
		return "", fmt.Errorf("%s: %w", path, cause(err))
	case len(data) > maxFile:
		return "", fmt.Errorf("%s: larger than 1 MiB", path)
	}
	text := string(data)
	if trimmed, ok := strings.CutSuffix(text, "\n"); ok {
		text = strings.TrimSuffix(trimmed, "\r")
	}
	return text, nil
}

// cause takes the path and the system call out of a file error, since the message names the path itself.
func cause(err error) error {
	for {
		pe, ok := err.(*fs.PathError) //nolint:errorlint // only the outermost layer is taken off
		if !ok {
			return err
		}
		err = pe.Err
	}
}
