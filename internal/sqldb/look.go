package sqldb

import (
	"context"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

// table is one that the migrations make.
type table struct {
	name    string
	columns []string // quoted
}

var (
	createTable = regexp.MustCompile(`^CREATE TABLE (?:IF NOT EXISTS )?(leat_[a-z]+) \($`)
	addColumn   = regexp.MustCompile(`^ALTER TABLE (leat_[a-z]+) ADD COLUMN "?([a-z_]+)"?`)
	dropColumn  = regexp.MustCompile(`^ALTER TABLE (leat_[a-z]+) DROP COLUMN "?([a-z_]+)"?`)
	dropTable   = regexp.MustCompile(`^DROP TABLE (leat_[a-z]+)`)
	column      = regexp.MustCompile(`^    "?([a-z_]+)"? +[a-zA-Z]`)
)

// tables reads out of the migrations what they come to. They are written for
// that: a table's head, each column and the end are lines of their own.
func tables(d Dialect) ([]table, error) {
	names, err := fs.Glob(migrations, path.Join(d.folder(), "*.sql"))
	if err != nil {
		return nil, err
	}
	var all []table
	find := func(name string) int { return slices.IndexFunc(all, func(t table) bool { return t.name == name }) }
	for _, name := range names {
		text, err := migrations.ReadFile(name)
		if err != nil {
			return nil, err
		}
		open := false
		for line := range strings.SplitSeq(string(text), "\n") {
			if m := createTable.FindStringSubmatch(line); m != nil {
				all, open = append(all, table{name: m[1]}), true
			} else if m := column.FindStringSubmatch(line); m != nil && open {
				all[len(all)-1].columns = append(all[len(all)-1].columns, `"`+m[1]+`"`)
			} else if m := addColumn.FindStringSubmatch(line); m != nil {
				t := &all[find(m[1])]
				t.columns = append(t.columns, `"`+m[2]+`"`)
			} else if m := dropColumn.FindStringSubmatch(line); m != nil {
				t := &all[find(m[1])]
				t.columns = slices.DeleteFunc(t.columns, func(c string) bool { return c == `"`+m[2]+`"` })
			} else if m := dropTable.FindStringSubmatch(line); m != nil {
				i := find(m[1])
				all = slices.Delete(all, i, i+1)
			} else if strings.HasPrefix(line, ")") {
				open = false
			}
		}
	}
	return all, nil
}

// look tries, with statements that touch no row, whether every table and column
// is there and may be read and written. It says all that is missing at once.
func (s *shared) look(ctx context.Context) error {
	missing, err := s.missing(ctx)
	if err == nil && missing != nil {
		err = s.unusable(strings.Join(missing, "; "))
	}
	return err
}

func (s *shared) missing(ctx context.Context) ([]string, error) {
	all, err := tables(s.target.dialect)
	if err != nil || s.allThere(ctx, all) {
		return nil, err
	}
	missing, denied, err := s.try(ctx, all)
	if len(denied) > 0 {
		missing = append(missing, s.adviceRights(denied))
	}
	return missing, err
}

// try finds out what is not there, and what is not granted.
func (s *shared) try(ctx context.Context, all []table) (missing []string, denied rights, err error) {
	for _, t := range all {
		var verbs []string
		for _, p := range t.probes() {
			_, err := s.writer.ExecContext(ctx, s.SQL(p.statement))
			switch {
			case err == nil:
			case deniedRight(err):
				verbs = append(verbs, p.right)
			case missingTable(err) || missingColumn(err):
				missing = append(missing, fmt.Sprintf("%s: %v", adviceTable, err))
			default:
				return nil, nil, err
			}
			if missingTable(err) || missingColumn(err) {
				break // the others would say the same
			}
		}
		denied.add(strings.Join(verbs, ", "), s.Table(t.name))
	}
	return missing, denied, nil
}

// allThere asks PostgreSQL for everything in one statement, which mostly is enough.
func (s *shared) allThere(ctx context.Context, all []table) bool {
	if s.target.dialect != Postgres {
		return false
	}
	var parts []string
	for _, t := range all {
		for _, p := range t.probes() {
			parts = append(parts, fmt.Sprintf("p%d AS (%s)", len(parts), p.statement))
		}
	}
	_, err := s.writer.ExecContext(ctx, s.SQL("WITH "+strings.Join(parts, ", ")+" SELECT 1"))
	return err == nil
}

// probe is a statement that touches no row, and the right it takes.
type probe struct{ right, statement string }

func (t *table) probes() []probe {
	columns := strings.Join(t.columns, ", ")
	return []probe{
		{"SELECT", "SELECT " + columns + " FROM " + t.name + " WHERE 1 = 0"},
		{"INSERT", "INSERT INTO " + t.name + " (" + columns + ") SELECT " + columns + " FROM " + t.name + " WHERE 1 = 0"},
		{"UPDATE", "UPDATE " + t.name + " SET " + t.columns[0] + " = " + t.columns[0] + " WHERE 1 = 0"},
		{"DELETE", "DELETE FROM " + t.name + " WHERE 1 = 0"},
	}
}
