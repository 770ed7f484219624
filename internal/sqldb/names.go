package sqldb

import (
	"strconv"
	"strings"
	"sync"
)

// names makes statements of one database out of those of the package's users.
type names struct {
	dialect Dialect
	tables  string // what stands for leat_: the schema, if any, and the prefix

	made sync.Map // of those made before, by what they were made of
}

const (
	prefix  = "leat_"
	maxKept = 2048 // bytes of a statement that is kept
)

// SQL makes of a statement what the database takes: see the package's
// documentation. What it made it keeps, but for long texts, which mostly have one
// group of arguments after the other.
func (n *names) SQL(query string) string {
	if n.dialect == SQLite {
		return query
	}
	if made, ok := n.made.Load(query); ok {
		return made.(string)
	}
	made := n.rewrite(query, true)
	if len(query) <= maxKept {
		n.made.Store(query, made)
	}
	return made
}

// Table is a table's name as the database takes it, of one such as leat_topics.
func (n *names) Table(name string) string { return n.rewrite(name, false) }

// rewrite leaves text between quotes, and comments, as they are. An apostrophe
// in a comment opens nothing.
func (n *names) rewrite(query string, arguments bool) string {
	var out strings.Builder
	out.Grow(len(query) + 64)
	argument := 0
	for i := 0; i < len(query); {
		rest := query[i:]
		switch {
		case strings.HasPrefix(rest, "--"):
			i += copyUntil(&out, rest, 2, '\n')
		case rest[0] == '\'':
			i += copyUntil(&out, rest, 1, '\'')
		case rest[0] == '"':
			end := copyUntil(&strings.Builder{}, rest, 1, '"')
			out.WriteString(n.quote(rest[:end]))
			i += end
		case strings.HasPrefix(rest, prefix) && (i == 0 || !inName(query[i-1])):
			out.WriteString(n.tables)
			i += len(prefix)
		case rest[0] == '?' && arguments && n.dialect == Postgres:
			i++
			digits := i
			for i < len(query) && query[i] >= '0' && query[i] <= '9' {
				i++
			}
			out.WriteByte('$')
			if digits < i {
				out.WriteString(query[digits:i])
			} else {
				argument++
				out.WriteString(strconv.Itoa(argument))
			}
		default:
			out.WriteByte(rest[0])
			i++
		}
	}
	return out.String()
}

// quote gives a quoted identifier the dialect's quotes. MySQL takes the
// standard's for text, unless its mode says otherwise.
func (n *names) quote(identifier string) string {
	if n.dialect == MySQL {
		return strings.ReplaceAll(identifier, `"`, "`")
	}
	return identifier
}

// copyUntil copies up to and with the first end at or after from, and says how
// many bytes that were.
func copyUntil(out *strings.Builder, text string, from int, end byte) int {
	n := len(text)
	if at := strings.IndexByte(text[from:], end); at >= 0 {
		n = from + at + 1
	}
	out.WriteString(text[:n])
	return n
}

func inName(c byte) bool {
	return c == '_' || c == '.' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}
