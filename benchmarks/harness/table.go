package harness

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// Print writes the rows as a table, and below it which targets are met.
func (g Group) Print(w io.Writer, rows []Row) error {
	fmt.Fprintf(w, "\n%s\n", g.Name)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "\tns/%[1]s\tmin..max\tCPU ns/%[1]s\tallocs/%[1]s\tB/%[1]s\tspeed\t\n", g.Unit)
	for _, r := range rows {
		fmt.Fprintf(t, "%s\t%.0f\t%.0f..%.0f\t%.0f\t%.2f\t%.0f\t%.2fx\t\n",
			r.Name, r.Wall, r.Min, r.Max, r.CPU, r.Allocs, r.Bytes, r.Speed)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, target := range g.Targets {
		i := slices.IndexFunc(rows, func(r Row) bool { return r.Name == target.Case })
		if i < 0 {
			return fmt.Errorf("%s: target of a case %q that is not there", g.Name, target.Case)
		}
		verdict := "met"
		if !target.Met(rows[i]) {
			verdict = "MISSED"
		}
		fmt.Fprintf(w, "  %s: %s: %s\n", target.Case, target.What, verdict)
	}
	return nil
}
