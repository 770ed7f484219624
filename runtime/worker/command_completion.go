package worker

import (
	"embed"
	"fmt"
	"regexp"
	"strings"

	"github.com/alecthomas/kong"
)

type completionCommand struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

//go:embed completion
var completion embed.FS

var notInFunctions = regexp.MustCompile(`[^a-zA-Z0-9]`)

// Run prints a script that has the shell ask the program.
func (c *completionCommand) Run(p *process) error {
	script, err := completion.ReadFile("completion/" + c.Shell)
	if err != nil {
		return fmt.Errorf("completion: %w", err)
	}
	function := notInFunctions.ReplaceAllString(p.name, "_")
	_, err = strings.NewReplacer("NAME", function, "PROGRAM", p.name).WriteString(p.out, string(script))
	return err
}

// completeCommand is what the scripts call.
type completeCommand struct {
	Words []string `arg:"" optional:""`
}

// Run prints a line for each word that can stand in place of the last one: the
// word, a tab, and what it means. None means a file, or anything.
func (c *completeCommand) Run(p *process, line *kong.Context) error {
	for _, w := range candidates(line.Model.Node, c.Words) {
		if _, err := fmt.Fprintf(p.out, "%s\t%s\n", w.word, w.help); err != nil {
			return err
		}
	}
	return nil
}

// candidate is a word that fits.
type candidate struct{ word, help string }

// candidates finds what fits after all words but the last, and begins as that
// does. bash gives --flag=value as three words.
func candidates(node *kong.Node, words []string) []candidate {
	last := ""
	if len(words) > 0 {
		last, words = words[len(words)-1], words[:len(words)-1]
	}
	var flag *kong.Flag // waits for its value
	for _, w := range words {
		switch {
		case w == "=":
		case flag != nil:
			flag = nil
		case strings.HasPrefix(w, "-"):
			if name, _, given := strings.Cut(w, "="); !given {
				flag = flagOf(node, name)
			}
		default:
			if child := childOf(node, w); child != nil {
				node = child
			}
		}
	}
	if last == "=" {
		last = ""
	}
	name, value, given := strings.Cut(last, "=")
	switch {
	case flag != nil:
		return beginning(last, values(flag.Value, ""))
	case strings.HasPrefix(last, "-") && given:
		if flag = flagOf(node, name); flag == nil {
			return nil
		}
		return beginning(name+"="+value, values(flag.Value, name+"="))
	case strings.HasPrefix(last, "-"):
		return beginning(last, flags(node))
	case len(node.Positional) > 0:
		return beginning(last, values(node.Positional[0], ""))
	}
	return beginning(last, commandsOf(node))
}

func beginning(prefix string, all []candidate) (fit []candidate) {
	for _, c := range all {
		if strings.HasPrefix(c.word, prefix) {
			fit = append(fit, c)
		}
	}
	return fit
}

func commandsOf(node *kong.Node) (all []candidate) {
	for _, child := range node.Children {
		if !child.Hidden {
			all = append(all, candidate{child.Name, child.Help})
		}
	}
	return all
}

func flags(node *kong.Node) (all []candidate) {
	for _, group := range node.AllFlags(true) {
		for _, f := range group {
			all = append(all, candidate{"--" + f.Name, f.Help})
		}
	}
	return all
}

func values(v *kong.Value, before string) (all []candidate) {
	if v.Enum == "" {
		return nil
	}
	for _, word := range v.EnumSlice() {
		all = append(all, candidate{before + word, ""})
	}
	return all
}

func childOf(node *kong.Node, name string) *kong.Node {
	for _, child := range node.Children {
		if child.Name == name {
			return child
		}
	}
	return nil
}

// flagOf is a flag that takes a value, by "--name" or "-n"; nil for others.
func flagOf(node *kong.Node, word string) *kong.Flag {
	for _, group := range node.AllFlags(true) {
		for _, f := range group {
			short := f.Short != 0 && word == "-"+string(f.Short)
			if (short || word == "--"+f.Name) && !f.IsBool() {
				return f
			}
		}
	}
	return nil
}
