package config

import (
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// masked stands for every secret, whatever its length.
const masked = "***"

// span is a range of bytes in a line.
type span struct{ from, to int }

var (
	// A key in a YAML line, with the quote it may stand in and the space behind its colon.
	lineKey = regexp.MustCompile(`(?:^|[\s{,?\[-])["']?([A-Za-z_][\w.-]*)["']?[ \t]*(?::(?:[ \t]+|$)|:["'])`)
	// A key of the explicit form, whose value begins on a later line.
	questionKey = regexp.MustCompile(`^[ \t-]*\?[ \t]+["']?([A-Za-z_][\w.-]*)["']?[ \t]*$`)
	// References that hold no value themselves; a default (:-) might be the secret.
	bareReference = regexp.MustCompile(`^["']?\$\{(?:[A-Za-z_]\w*(?::\?[^}]*)?|file:[^}]*)\}["']?$`)
)

// mask replaces the spans of a line by ***, and moves a character offset along.
func mask(text string, spans []span, offset int) (out string, moved int) {
	slices.SortFunc(spans, func(a, b span) int { return a.from - b.from })
	var b strings.Builder
	done, seen := 0, 0 // bytes of text, characters of text
	moved = -1
	emit := func(s string, characters int) {
		if moved < 0 && offset < seen+characters {
			moved = utf8.RuneCountInString(b.String())
			if s != masked {
				moved += offset - seen
			}
		}
		b.WriteString(s)
		seen += characters
	}
	for _, s := range spans {
		if s.to <= done || s.to <= s.from {
			continue
		}
		from := max(s.from, done)
		emit(text[done:from], utf8.RuneCountInString(text[done:from]))
		emit(masked, utf8.RuneCountInString(text[from:s.to]))
		done = s.to
	}
	emit(text[done:], utf8.RuneCountInString(text[done:]))
	if moved < 0 {
		moved = utf8.RuneCountInString(b.String())
	}
	return b.String(), moved
}

// maskLines finds the secrets in the lines of a YAML text without parsing it, since a text that does not parse is shown too:
// URLs, what stands behind a key with a secret's name, and the lines that continue such a value.
func maskLines(lines []string) map[int][]span {
	masks := map[int][]span{}
	under := -1       // the indentation of a secret key, while lines deeper than it belong to its value
	open := byte(0)   // the quote a secret value was left open with
	names := -1       // the indentation of the entries below consumers: or brokers:, whose names are no secret's
	inside := false   // below consumers: or brokers:
	explicit := false // the secret key was "? key": lines at its own indentation belong to it
	for i, line := range lines {
		indent := len(line) - len(strings.TrimLeft(line, " \t"))
		blank := indent == len(line)
		if open != 0 || blank || (under >= 0 && (indent > under || (explicit && indent == under))) {
			if !blank {
				masks[i] = []span{{indent, len(line)}}
			}
			if open != 0 && strings.IndexByte(line, open) >= 0 {
				open = 0
			}
			continue
		}
		under, explicit = -1, false
		if indent == 0 {
			key, _, _ := strings.Cut(line, ":")
			inside, names = namesEntries(key), -1
		} else if inside && names < 0 && line[indent] != '#' {
			names = indent
		}
		spans := append(lineURLs(line), plainSecrets(line)...)
		if m := questionKey.FindStringSubmatchIndex(line); m != nil && secretName(line[m[2]:m[3]]) {
			under, explicit = indent, true
		}
		covered := 0
		for _, m := range lineKey.FindAllStringSubmatchIndex(line, -1) {
			isEntry := indent == names && strings.Trim(line[:m[2]], ` "'`) == ""
			if m[2] < covered || isEntry || !secretName(line[m[2]:m[3]]) {
				continue
			}
			under = indent
			from := m[1]
			if c := line[from-1]; c == '"' || c == '\'' {
				from--
			}
			value := valueSpan(line, from)
			covered = value.to
			if bareReference.MatchString(line[value.from:value.to]) {
				continue
			}
			spans = append(spans, value)
			if quote := line[value.from:value.to]; quote != "" && (quote[0] == '"' || quote[0] == '\'') &&
				strings.Count(quote, quote[:1]) == 1 {
				open = quote[0]
			}
		}
		if len(spans) > 0 {
			masks[i] = spans
		}
	}
	return masks
}

// valueSpan is where a value that begins at from ends: at its closing quote, else at a comma or brace where the line has
// the flow style, else at the end of the line.
func valueSpan(line string, from int) span {
	rest := line[from:]
	if rest == "" {
		return span{from, from}
	}
	if q := rest[0]; q == '"' || q == '\'' {
		if end := strings.IndexByte(rest[1:], q); end >= 0 && (q == '\'' || !strings.Contains(rest[:end+1], `\`)) {
			return span{from, from + end + 2}
		}
		return span{from, len(line)}
	}
	if strings.HasPrefix(rest, "${") {
		if end := strings.IndexByte(rest, '}'); end >= 0 {
			return span{from, from + end + 1}
		}
	}
	if strings.ContainsAny(line[:from], "{[") {
		if end := strings.IndexAny(rest, ",}]"); end >= 0 {
			return span{from, from + end}
		}
	}
	return span{from, len(line)}
}

// secretWords are what the names of secrets contain.
var secretWords = []string{"password", "passwd", "passphrase", "secret", "token", "credential", "apikey", "accesskey", "privatekey", "authorization"}

// secretName says whether a key names a secret. A slip of the pen (pasword) counts, since the line that reports it is printed.
func secretName(key string) bool {
	key = plainName(key)
	if key == "pass" || key == "pwd" || key == "auth" {
		return true
	}
	for _, word := range secretWords {
		if strings.Contains(key, word) || near(key, word) {
			return true
		}
	}
	return false
}
