package worker

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/leat-io/leat/config"
)

// lintTarget is one configuration: files that overlay each other, or a block
// of a Markdown text.
type lintTarget struct {
	name  string
	files []string
	block *config.Data
}

func (t lintTarget) option(set []string) Option {
	return func(o *options) {
		o.config.Files, o.config.Data = t.files, nil
		if t.block != nil {
			o.config.Data = []config.Data{*t.block}
		}
		o.config.Set = append(o.config.Set, set...)
	}
}

// lintTargets finds the configurations that arguments name: files, patterns,
// and folders with all below them (also written folder/...).
func lintTargets(args []string) ([]lintTarget, error) {
	var all []lintTarget
	for _, arg := range args {
		found, err := targetsOf(arg)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	if len(all) == 0 {
		return nil, usageError(fmt.Sprintf("no configuration in %s: name a YAML file, a Markdown file with a block of yaml that has broker: or consumers:, or a folder with such files", strings.Join(args, ", ")))
	}
	return all, nil
}

func targetsOf(arg string) ([]lintTarget, error) {
	path := arg
	if tree, ok := strings.CutSuffix(arg, "..."); ok {
		path = filepath.Clean(tree)
	}
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		return targetsBelow(path)
	case err == nil, !strings.ContainsAny(path, "*?["):
		return targetsIn(path)
	}
	matches, err := filepath.Glob(path)
	if err != nil {
		return nil, usageError(fmt.Sprintf("%q is not a pattern: %v", arg, err))
	}
	var all []lintTarget
	for _, match := range matches {
		found, err := targetsOf(match)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// targetsIn is a file itself, or what a Markdown file has in it.
func targetsIn(path string) ([]lintTarget, error) {
	if !slices.Contains([]string{".md", ".markdown"}, strings.ToLower(filepath.Ext(path))) {
		return []lintTarget{{name: path, files: []string{path}}}, nil
	}
	text, err := head(path)
	if err != nil {
		return nil, err
	}
	var all []lintTarget
	for _, block := range config.Markdown(path, text) {
		line := len(block.Text) - len(bytes.TrimLeft(block.Text, "\n"))
		all = append(all, lintTarget{name: fmt.Sprintf("%s:%d", path, line+1), block: &block})
	}
	return all, nil
}

var (
	namesBroker    = regexp.MustCompile(`(?m)^brokers?:`)
	namesConsumers = regexp.MustCompile(`(?m)^consumers:`)
)

// targetsBelow looks for Markdown, and for YAML that has both a broker and
// consumers: overlays and the files of other programs are left alone. So are
// folders that Go would leave alone.
func targetsBelow(dir string) ([]lintTarget, error) {
	var all []lintTarget
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		name := d.Name()
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != dir && (strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || slices.Contains([]string{"testdata", "vendor", "node_modules"}, name)):
			return fs.SkipDir
		case !d.Type().IsRegular():
			return nil
		}
		switch strings.ToLower(filepath.Ext(name)) {
		case ".yaml", ".yml":
			text, err := head(path)
			if err != nil || !namesBroker.Match(text) || !namesConsumers.Match(text) {
				return err
			}
		case ".md", ".markdown":
		default:
			return nil
		}
		found, err := targetsIn(path)
		all = append(all, found...)
		return err
	})
	return all, err
}

// maxLinted bounds how much of a file is looked at for configurations in it.
const maxLinted = 4 << 20

func head(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, maxLinted))
	return text, errors.Join(err, f.Close())
}
