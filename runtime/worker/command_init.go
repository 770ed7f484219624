package worker

import (
	"bytes"
	"cmp"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"text/template"

	"github.com/leat-io/leat/runtime/transport"
)

type initCommand struct {
	Dir    string `arg:"" optional:"" default:"." help:"Where to; made if it is not there. Default: here."`
	Name   string `help:"The service. Default: the name of the folder."`
	Broker string `default:"sqlite" placeholder:"KIND" help:"Which kind of broker; list transports shows them. Default: sqlite."`
}

//go:embed project/*.tmpl
var project embed.FS

// projectFiles are written in this order.
var projectFiles = []string{"worker.yaml", "main.go", "main_test.go"}

// Run writes a file, a program and a test, where none of them is.
func (c *initCommand) Run(p *process) error {
	o, err := gather(p.opts)
	if err != nil {
		return err
	}
	kind := o.table.transport(c.Broker)
	if kind == nil {
		return usageError(fmt.Sprintf("--broker %q: there is no such transport; there is: %s", c.Broker, strings.Join(o.table.transportNames(), ", ")))
	}
	name, err := c.name()
	if err != nil {
		return err
	}
	if err := c.vacant(); err != nil {
		return err
	}
	if err := os.MkdirAll(c.Dir, 0o755); err != nil { //nolint:gosec // the umask decides who may read a project
		return err
	}
	t, err := template.ParseFS(project, "project/*.tmpl")
	if err != nil {
		return fmt.Errorf("project: %w", err)
	}
	for _, file := range projectFiles {
		var content bytes.Buffer
		if err := t.ExecuteTemplate(&content, file+".tmpl", struct{ Name, Broker string }{name, kind.Example}); err != nil {
			return fmt.Errorf("project: %w", err)
		}
		if err := writeNew(filepath.Join(c.Dir, file), content.Bytes()); err != nil {
			return err
		}
	}
	_, err = fmt.Fprint(p.out, c.next(name))
	return err
}

var notInNames = regexp.MustCompile(`[^a-zA-Z0-9._]+`)

// name is the service's: what was given, or the folder's with what a name
// cannot hold left out.
func (c *initCommand) name() (string, error) {
	if c.Name != "" {
		err := transport.CheckName("--name", c.Name)
		if err == nil && strings.Contains(c.Name, "--") {
			err = fmt.Errorf(`--name %q: "--" joins the parts of derived names`, c.Name)
		}
		if err != nil {
			return "", usageError(err.Error())
		}
		return c.Name, nil
	}
	dir, err := filepath.Abs(c.Dir)
	if err != nil {
		return "", err
	}
	return cmp.Or(strings.Trim(notInNames.ReplaceAllString(filepath.Base(dir), "-"), "-._"), "worker"), nil
}

// vacant refuses a folder where anything would be overwritten.
func (c *initCommand) vacant() error {
	var there []string
	for _, file := range projectFiles {
		if _, err := os.Lstat(filepath.Join(c.Dir, file)); !errors.Is(err, fs.ErrNotExist) {
			there = append(there, file)
		}
	}
	if len(there) > 0 {
		return fmt.Errorf("%s: %s there already, and nothing is overwritten; name another folder", c.Dir, strings.Join(there, ", "))
	}
	return nil
}

func writeNew(path string, content []byte) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644) //nolint:gosec // the umask decides who may read a project
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Close())
}

// next says how to go on.
func (c *initCommand) next(name string) string {
	var out strings.Builder
	fmt.Fprintf(&out, "wrote %s to %s; there:\n", strings.Join(projectFiles, ", "), c.Dir)
	if !inModule(c.Dir) {
		fmt.Fprintf(&out, "  go mod init example.com/%s\n", name)
	}
	at := version()
	if !strings.HasPrefix(at, "v") {
		at = "latest"
	}
	fmt.Fprintf(&out, "  go get %s@%s && go mod tidy\n", module, at)
	out.WriteString("  go test .\n  go run . publish orders.placed '{\"id\": \"o-1\", \"total\": 500}'\n  go run . run\n")
	return out.String()
}

// inModule looks for a go.mod in the folder and above it.
func inModule(dir string) bool {
	dir, err := filepath.Abs(dir)
	for err == nil {
		if _, missing := os.Stat(filepath.Join(dir, "go.mod")); missing == nil {
			return true
		}
		if filepath.Dir(dir) == dir {
			break
		}
		dir = filepath.Dir(dir)
	}
	return false
}
