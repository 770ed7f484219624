package sqldb

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
)

func (s *shared) adviceRights(denied rights) string {
	return fmt.Sprintf("user %s lacks rights: grant it %s", s.target.user, denied)
}

// lacks is the error of a user who may not read the version of the schema. It
// names that right, and all others that are missing.
func (s *shared) lacks(ctx context.Context, refused error) error {
	all, err := tables(s.target.dialect)
	if err != nil {
		return err
	}
	var denied rights
	if s.target.dialect == Postgres {
		denied, err = s.deniedPostgres(ctx, all)
	} else {
		denied.add("SELECT", s.Table(schemaTable))
		var tried rights
		_, tried, err = s.try(ctx, all)
		denied = append(denied, tried...)
	}
	if err != nil {
		return err
	}
	if len(denied) == 0 { // it has been granted since
		return refused
	}
	return &UnusableError{Database: s.target.name, Problem: s.adviceRights(denied), Err: refused}
}

// deniedPostgres reads the catalog, which anybody may: without USAGE on the
// schema every statement is refused, whatever is granted on its tables.
func (s *shared) deniedPostgres(ctx context.Context, all []table) (denied rights, err error) {
	schema, _, _ := strings.Cut(s.tables, ".")
	var user string
	var usage bool
	err = s.writer.QueryRowContext(ctx, "SELECT quote_ident(current_user), has_schema_privilege($1, 'USAGE')", schema).Scan(&user, &usage)
	if err != nil {
		return nil, err
	}
	if !usage {
		denied.add("USAGE", fmt.Sprintf("schema %s (GRANT USAGE ON SCHEMA %s TO %s)", schema, schema, user))
	}
	add := func(table string, verbs ...string) error {
		var missing sql.NullString
		err := s.writer.QueryRowContext(ctx, `
SELECT string_agg(verb, ', ' ORDER BY n)
FROM pg_class c JOIN pg_namespace ns ON ns.oid = c.relnamespace, unnest($3::text[]) WITH ORDINALITY v (verb, n)
WHERE ns.nspname = $1 AND c.relname = $2 AND NOT has_table_privilege(c.oid, verb)`,
			schema, strings.TrimPrefix(s.Table(table), schema+"."), verbs).Scan(&missing)
		denied.add(missing.String, s.Table(table))
		return err
	}
	if err := add(schemaTable, "SELECT"); err != nil {
		return nil, err
	}
	for _, t := range all {
		if err := add(t.name, "SELECT", "INSERT", "UPDATE", "DELETE"); err != nil {
			return nil, err
		}
	}
	return denied, nil
}

// rights are tables by what is not granted on them.
type rights []struct {
	verbs  string
	tables []string
}

func (r *rights) add(verbs, table string) {
	if verbs == "" {
		return
	}
	for i := range *r {
		if (*r)[i].verbs == verbs {
			(*r)[i].tables = append((*r)[i].tables, table)
			return
		}
	}
	*r = append(*r, struct {
		verbs  string
		tables []string
	}{verbs, []string{table}})
}

func (r rights) String() string {
	texts := make([]string, len(r))
	for i, g := range r {
		texts[i] = g.verbs + " on " + strings.Join(g.tables, ", ")
	}
	return strings.Join(texts, "; ")
}
