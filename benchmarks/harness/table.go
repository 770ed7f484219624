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
	broker := func(figure string) string {
		switch {
		case g.Broker == "":
			return ""
		case figure == "0": // it was not seen
			return "-\t"
		default:
			return figure + "\t"
		}
	}
	fmt.Fprintf(t, "\t%[1]s/s\tns/%[1]s\tmin..max\tCPU ns/%[1]s\t%[2]sallocs/%[1]s\tB/%[1]s\tspeed\t\n", g.Unit, broker("broker's"))
	for _, r := range rows {
		if r.Skip != "" {
			continue
		}
		fmt.Fprintf(t, "%s\t%.0f\t%.0f\t%.0f..%.0f\t%.0f\t%s%.2f\t%.0f\t%.2fx\t\n",
			r.Name, 1e9/r.Wall, r.Wall, r.Min, r.Max, r.CPU, broker(fmt.Sprintf("%.0f", r.Broker)), r.Allocs, r.Bytes, r.Speed)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, r := range rows {
		if r.Skip != "" {
			fmt.Fprintf(w, "  %s: skipped: %s\n", r.Name, r.Skip)
		}
	}
	for _, target := range g.Targets {
		verdict, err := target.verdict(rows)
		if err != nil {
			return fmt.Errorf("%s: %w", g.Name, err)
		}
		fmt.Fprintf(w, "  %s: %s: %s\n", target.Case, target.What, verdict)
	}
	return nil
}

func (t Target) verdict(rows []Row) (string, error) {
	find := func(name string) (Row, error) {
		i := slices.IndexFunc(rows, func(r Row) bool { return r.Name == name })
		if i < 0 {
			return Row{}, fmt.Errorf("target of a case %q that is not there", name)
		}
		return rows[i], nil
	}
	r, err := find(t.Case)
	if err != nil {
		return "", err
	}
	base := rows[0]
	if t.Against != "" {
		if base, err = find(t.Against); err != nil {
			return "", err
		}
	}
	if r.Skip != "" || base.Skip != "" {
		return "not measured", nil
	}
	r.against(base)
	verdict := "met"
	if !t.Met(r) {
		verdict = "MISSED"
	}
	if t.Against != "" {
		verdict += fmt.Sprintf(" (%.2fx as fast, %.2fx less CPU time)", r.Speed, r.Thrift)
	}
	return verdict, nil
}
