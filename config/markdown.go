package config

import (
	"bytes"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

var (
	fenceLine = regexp.MustCompile("^[ \t]*(`{3,}|~{3,})[ \t]*([^`]*?)[ \t\r]*$")
	wholeFile = regexp.MustCompile(`(?m)^[ \t]*(?:consumers|broker):`)
)

// Markdown finds the configurations in a Markdown text: its fenced blocks of yaml (or yml) that have a line `consumers:` or
// `broker:` and whose info string does not go on with the word fragment. Positions in them are those of the whole text, and
// relative paths start from the text's folder.
func Markdown(name string, text []byte) []Data {
	var found []Data
	lines := bytes.SplitAfter(bytes.TrimPrefix(text, []byte(bom)), []byte("\n"))
	for i := 0; i < len(lines); i++ {
		open := fenceLine.FindSubmatch(bytes.TrimRight(lines[i], "\n"))
		if open == nil {
			continue
		}
		first := i + 1
		for i++; i < len(lines) && !closes(lines[i], open[1]); i++ {
		}
		block := bytes.Join(lines[first:min(i, len(lines))], nil)
		info := strings.Fields(strings.ToLower(string(open[2])))
		isYAML := len(info) > 0 && (info[0] == "yaml" || info[0] == "yml")
		if !isYAML || slices.Contains(info[1:], "fragment") || !wholeFile.Match(block) {
			continue
		}
		// Empty lines in place of what stands before it keep its line numbers, and its own indentation its columns.
		padded := append(bytes.Repeat([]byte("\n"), first), block...)
		found = append(found, Data{Name: name, Text: padded, Dir: filepath.Dir(name)})
	}
	return found
}

// closes says whether a line ends the block that a fence opened: as many of the same characters, or more, and nothing else.
func closes(line, fence []byte) bool {
	line = bytes.TrimSpace(line)
	return len(line) >= len(fence) && len(bytes.Trim(line, string(fence[:1]))) == 0
}
