package config

import (
	"strings"
	"unicode"
)

// snippetWidth is how much of a long line is shown, in characters.
const snippetWidth = 140

// source is one text a configuration was read from.
type source struct {
	name  string
	dir   string   // what relative paths in this text are relative to
	lines []string // empty for --set
	masks map[int][]span
}

// place is a position in a source, counted from 1; the zero line is the source as a whole.
type place struct {
	src       *source
	line, col int
}

func newSource(name, dir, text string) *source {
	lines := splitLines(text)
	return &source{name: name, dir: dir, lines: lines, masks: maskLines(lines)}
}

// splitLines breaks a text where the YAML scanner does, so that its line numbers mean the same here.
func splitLines(text string) []string {
	return strings.Split(lineBreaks.Replace(text), "\n")
}

var lineBreaks = strings.NewReplacer("\r\n", "\n", "\r", "\n", "\u0085", "\n", "\u2028", "\n", "\u2029", "\n")

// snippet returns a line with its secrets masked and where col falls in it.
func (s *source) snippet(line, col int) (text string, caret int) {
	if line < 1 || line > len(s.lines) {
		return "", 0
	}
	masked, caret := mask(s.lines[line-1], s.masks[line-1], col-1)
	runes := []rune(strings.TrimRight(masked, " \t"))
	for i, r := range runes {
		if !unicode.IsPrint(r) {
			runes[i] = ' '
		}
	}
	if len(runes) <= snippetWidth {
		return string(runes), caret
	}
	from := min(max(0, caret-snippetWidth/2), len(runes)-snippetWidth)
	cut := string(runes[from : from+snippetWidth])
	if from > 0 {
		cut, caret = "…"+cut, caret+1
	}
	if from+snippetWidth < len(runes) {
		cut += "…"
	}
	return cut, caret - from
}

// hide masks the rest of the line from the place on, and the lines below it that are indented deeper.
func (p place) hide() {
	if p.src == nil || p.line < 1 || p.line > len(p.src.lines) {
		return
	}
	line := p.src.lines[p.line-1]
	from := len(string([]rune(line)[:min(p.col-1, len([]rune(line)))]))
	value := valueSpan(line, from)
	if !bareReference.MatchString(line[value.from:value.to]) {
		p.src.masks[p.line-1] = append(p.src.masks[p.line-1], value)
	}
	indent := len(line) - len(strings.TrimLeft(line, " "))
	for i := p.line; i < len(p.src.lines); i++ {
		next := p.src.lines[i]
		deep := len(next) - len(strings.TrimLeft(next, " "))
		if deep <= indent && deep < len(next) {
			return
		}
		p.src.masks[i] = append(p.src.masks[i], span{deep, len(next)})
	}
}
