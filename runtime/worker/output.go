package worker

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// outputFlag says how something is printed.
type outputFlag struct {
	Output string `short:"o" enum:"table,json" default:"table" placeholder:"table|json" help:"How to print: table or json."`
}

func (f *outputFlag) json() bool { return f.Output == "json" }

// printList prints items as JSON, or as a table with a row for each.
func printList[T any](w io.Writer, f outputFlag, items []T, header []string, row func(T) []string) error {
	if f.json() {
		if items == nil {
			items = []T{} // a list, not null
		}
		return printJSON(w, items)
	}
	rows := [][]string{header}
	for _, item := range items {
		rows = append(rows, row(item))
	}
	return printTable(w, rows)
}

func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// printTable aligns columns by spaces.
func printTable(w io.Writer, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, r := range rows {
		if _, err := fmt.Fprintln(t, strings.Join(r, "\t")); err != nil {
			return err
		}
	}
	return t.Flush()
}
