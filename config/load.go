package config

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// maxFile bounds a configuration file, and a file that a reference reads.
const maxFile = 1 << 20

// DefaultFile is what is read where no file is named.
const DefaultFile = "worker.yaml"

// Options say where a configuration comes from. Later sources overlay earlier ones: Files, then Data, then Set.
type Options struct {
	// Files are paths. Defaults to worker.yaml where Data is empty too.
	Files []string
	// Data are texts that are in no file of their own: standard input, a block of a document, tests.
	Data []Data
	// Set are overlays "path.to.key=value", the value in YAML on one line. A null deletes the key.
	Set []string
	// LookupEnv resolves ${VAR}. Defaults to os.LookupEnv.
	LookupEnv func(name string) (string, bool)
	// ReadFile resolves ${file:PATH}, with PATH joined to the folder of the YAML file. Defaults to reading at most 1 MiB.
	ReadFile func(path string) ([]byte, error)
}

// Data is a configuration text with the name that errors call it by.
type Data struct {
	Name string
	Text []byte
	// Dir is what relative paths in the text are relative to. Defaults to the working folder.
	Dir string
}

// Load reads, merges, resolves and checks a configuration.
// Its error is an [*Error] with everything that is wrong; the Config is nil then.
// What needs to know the transports is left to [Config.Lint], and the options of components to [Component.Decode].
func Load(o Options) (*Config, error) {
	var r report
	root := o.read(&r)
	if root == nil {
		return nil, r.err()
	}
	e := expander{report: &r, lookup: o.LookupEnv, readFile: o.ReadFile}
	if e.lookup == nil {
		e.lookup = os.LookupEnv
	}
	if e.readFile == nil {
		e.readFile = readFile
	}
	e.node(root, "")
	markAllSecrets(root)

	c := newConfig(root)
	c.decode(&r)
	if err := r.err(); err != nil {
		return nil, err
	}
	return c, nil
}

// read parses and merges all sources, nil where one of them has no tree.
func (o Options) read(r *report) *node {
	files := o.Files
	if len(files) == 0 && len(o.Data) == 0 {
		files = []string{DefaultFile}
	}
	var trees []*node
	for _, name := range files {
		data, err := readFile(name)
		if err != nil {
			r.problems = append(r.problems, Problem{File: name, Message: fileMessage(err)})
			trees = append(trees, nil)
			continue
		}
		trees = append(trees, parse(name, filepath.Dir(name), data, r))
	}
	for _, d := range o.Data {
		if len(d.Text) > maxFile {
			r.problems = append(r.problems, Problem{File: d.Name, Message: errTooLarge.Error()})
			trees = append(trees, nil)
			continue
		}
		trees = append(trees, parse(d.Name, cmp.Or(d.Dir, "."), d.Text, r))
	}
	for _, set := range o.Set {
		trees = append(trees, parseSet(set, r))
	}
	var root *node
	for _, tree := range trees {
		if tree == nil {
			return nil
		}
		root = merge(root, tree, nil)
	}
	return root
}

var (
	errTooLarge = errors.New("larger than 1 MiB; a worker's file is a few hundred lines")
	errNoFile   = errors.New("a folder or device, not a file")
)

// readFile reads a regular file, a pipe included, of at most maxFile bytes.
func readFile(name string) ([]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if info.IsDir() || info.Mode()&fs.ModeDevice != 0 {
		return nil, errNoFile
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = errTooLarge
	}
	return data, err
}

func fileMessage(err error) string {
	if errors.Is(err, fs.ErrNotExist) {
		return "no such file; name another with -c"
	}
	return fmt.Sprint(cause(err))
}
