package sqldb

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	"github.com/pressly/goose/v3"
)

//go:embed migrations
var migrations embed.FS

const schemaTable = "leat_schema"

// A migration's version says who may go on beside it: version 3005 is the fifth
// step, and programs that know of the third are fine with it. A step that only
// adds keeps the thousands of the one before. One that takes away what the
// third has replaced has 3 for them, and comes a release later.
const generation = 1000

// schema is that of one database, with what it takes to bring it up to date.
type schema struct {
	db       *sql.DB
	names    *names
	database string // its name, for errors
	version  func(ctx context.Context, db *sql.DB, table string) (int64, error)
}

// have is the version that is there. It refuses one that has left this program behind.
func (m *schema) have(ctx context.Context, p *goose.Provider) (int64, error) {
	have, err := m.version(ctx, m.db, m.names.Table(schemaTable))
	if err != nil {
		return 0, err
	}
	if want := latest(p); leftBehind(have, want) {
		return 0, &UnusableError{Database: m.database, Problem: fmt.Sprintf("has schema version %d, newer than the %d this program knows: run a newer program", have, want)}
	}
	return have, nil
}

// leftBehind tells whether a program whose latest version is want is too old for what is there.
func leftBehind(have, want int64) bool { return have > want && have/generation > want%generation }

// up applies what is missing. The caller has the lock.
func (m *schema) up(ctx context.Context) error {
	p, err := m.provider()
	if err != nil {
		return err
	}
	have, err := m.have(ctx, p)
	if err != nil || have >= latest(p) {
		return err
	}
	if _, err := p.Up(ctx); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	return nil
}

func (m *schema) verify(ctx context.Context) error {
	p, err := m.provider()
	if err != nil {
		return err
	}
	have, err := m.have(ctx, p)
	if want := latest(p); err == nil && have < want {
		err = &UnusableError{Database: m.database, Problem: fmt.Sprintf("has schema version %d, this program needs %d, and topology: verify changes nothing: run `worker migrate`, or once with topology: declare", have, want)}
	}
	return err
}

// pending lists what up would apply.
func (m *schema) pending(ctx context.Context) ([]Migration, error) {
	p, err := m.provider()
	if err != nil {
		return nil, err
	}
	have, err := m.have(ctx, p)
	if err != nil {
		return nil, err
	}
	var pending []Migration
	for _, source := range p.ListSources() {
		if source.Version <= have {
			continue
		}
		text, err := fs.ReadFile(m.files(), path.Base(source.Path))
		if err != nil {
			return nil, fmt.Errorf("migration %s: %w", source.Path, err)
		}
		pending = append(pending, Migration{source.Version, path.Base(source.Path), upOf(string(text))})
	}
	return pending, nil
}

// upOf is what a migration runs.
func upOf(text string) string {
	_, up, _ := strings.Cut(text, "-- +goose Up\n")
	up, _, _ = strings.Cut(up, "-- +goose Down")
	return strings.TrimSpace(up)
}

func latest(p *goose.Provider) int64 {
	sources := p.ListSources()
	return sources[len(sources)-1].Version
}

func (m *schema) provider() (*goose.Provider, error) {
	dialect := map[Dialect]goose.Dialect{SQLite: goose.DialectSQLite3, Postgres: goose.DialectPostgres, MySQL: goose.DialectMySQL}[m.names.dialect]
	p, err := goose.NewProvider(dialect, m.db, m.files(),
		goose.WithTableName(m.names.Table(schemaTable)), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return nil, fmt.Errorf("migrations: %w", err)
	}
	return p, nil
}

// files are the migrations as this database takes them.
func (m *schema) files() fs.FS {
	files, _ := fs.Sub(migrations, m.names.dialect.folder()) // fails for a bad name only
	return namedFiles{files, m.names}
}

// namedFiles are files of SQL, with the names of tables replaced.
type namedFiles struct {
	fs.FS

	names *names
}

func (f namedFiles) Open(name string) (fs.File, error) {
	file, err := f.FS.Open(name)
	if err != nil || path.Ext(name) != ".sql" {
		return file, err
	}
	text, err := io.ReadAll(file)
	if f.names.dialect != SQLite {
		text = []byte(f.names.rewrite(string(text), false))
	}
	return &namedFile{file, strings.NewReader(string(text))}, err
}

type namedFile struct {
	fs.File

	text io.Reader
}

func (f *namedFile) Read(b []byte) (int, error) { return f.text.Read(b) }
