package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/leat-io/leat/config"
	"github.com/leat-io/leat/runtime/transport"
)

type migrateCommand struct {
	fileFlags

	DryRun bool `xor:"how" help:"Print what would be run, and change nothing."`
	Check  bool `xor:"how" help:"Look through the databases and say what is wrong: 1 if anything is. Changes nothing."`
}

// Run works on every database that the file names as a broker or store and
// that has a schema of ours.
func (c *migrateCommand) Run(ctx context.Context, p *process) (err error) {
	o, err := gather(p.with(c.option()))
	if err != nil {
		return err
	}
	cfg, err := config.Load(o.config)
	if err != nil {
		return err
	}
	databases, closing, err := o.databases(cfg)
	defer func() { err = errors.Join(err, closing(context.WithoutCancel(ctx))) }()
	if err != nil {
		return err
	}
	if len(databases) == 0 {
		_, err := fmt.Fprintln(p.out, "no broker or store of this configuration has a schema")
		return err
	}
	wrong := false
	for _, db := range databases {
		var said string
		switch {
		case c.DryRun:
			said, err = dryRun(ctx, db)
		case c.Check:
			var ok bool
			said, ok = checkDatabase(ctx, db)
			wrong = wrong || !ok
		default:
			said, err = migrate(ctx, db)
		}
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintln(p.out, said); err != nil {
			return err
		}
	}
	if wrong {
		return quietError(exitFailed)
	}
	return nil
}

// databases opens every broker, and the store where it is a kind of broker
// too. Each database is there once.
func (o *options) databases(cfg *config.Config) (all []transport.Migrator, closing func(context.Context) error, err error) {
	var opened []transport.Transport
	closing = func(ctx context.Context) error {
		var errs []error
		for _, t := range opened {
			errs = append(errs, t.Close(ctx))
		}
		return errors.Join(errs...)
	}
	env := Env{Name: cfg.Name, Instance: o.instance, Topology: transport.Topology(cfg.Topology), Log: o.log}
	components := []config.Component{cfg.Broker}
	for _, c := range cfg.Brokers {
		components = append(components, c)
	}
	if o.table.transport(cfg.Store.Kind) != nil {
		components = append(components, cfg.Store)
	}
	var errs []error
	for _, c := range components {
		if c.IsZero() {
			continue
		}
		t, err := o.table.open(env, c)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		opened = append(opened, t)
		if db, ok := t.(transport.Migrator); ok {
			all = append(all, db)
		}
	}
	slices.SortFunc(all, func(a, b transport.Migrator) int { return strings.Compare(a.Database(), b.Database()) })
	all = slices.CompactFunc(all, func(a, b transport.Migrator) bool { return a.Database() == b.Database() })
	return all, closing, config.Join(errs...)
}

func migrate(ctx context.Context, db transport.Migrator) (string, error) {
	pending, err := db.Pending(ctx)
	if err != nil {
		return "", err
	}
	if err := db.Migrate(ctx); err != nil {
		return "", err
	}
	if len(pending) == 0 {
		return db.Database() + ": up to date", nil
	}
	return db.Database() + ": applied " + migrationNames(pending), nil
}

func dryRun(ctx context.Context, db transport.Migrator) (string, error) {
	pending, err := db.Pending(ctx)
	if err != nil {
		return "", err
	}
	if len(pending) == 0 {
		return "-- " + db.Database() + ": up to date", nil
	}
	var out strings.Builder
	for _, m := range pending {
		fmt.Fprintf(&out, "-- %s: %s\n%s\n", db.Database(), m.Name, m.SQL)
	}
	return strings.TrimSuffix(out.String(), "\n"), nil
}

// checkDatabase says all that is wrong with a database.
func checkDatabase(ctx context.Context, db transport.Migrator) (said string, ok bool) {
	var problems []string
	pending, err := db.Pending(ctx)
	switch {
	case err != nil:
		problems = append(problems, config.MaskURL(err.Error()))
	case len(pending) > 0:
		problems = append(problems, migrationNames(pending)+" not applied yet; run migrate")
	}
	if err == nil {
		complaints, err := db.Check(ctx)
		problems = append(problems, complaints...)
		if err != nil {
			problems = append(problems, config.MaskURL(err.Error()))
		}
	}
	if len(problems) == 0 {
		return db.Database() + ": ok", true
	}
	return db.Database() + ": " + strings.Join(problems, "\n"+db.Database()+": "), false
}

func migrationNames(pending []transport.Migration) string {
	names := make([]string, len(pending))
	for i, m := range pending {
		names[i] = m.Name
	}
	return strings.Join(names, ", ")
}
