package dir

import (
	"path/filepath"
	"strings"

	"github.com/leat-io/leat/config"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/worker"
)

// Kind makes dir a kind of broker for files: dir://PATH, or {dir: {path: …}}.
// A relative path starts from the folder of the file.
func Kind() worker.TransportKind {
	return worker.TransportKind{
		Kind: "dir", Example: "dir://box", Doc: "a directory, shared by processes of one machine",
		Options: &Options{}, Open: open,
	}
}

func open(_ worker.Env, c config.Component) (transport.Transport, error) {
	var o Options
	if err := c.Decode(&o); err != nil {
		return nil, err
	}
	if _, path, ok := strings.Cut(c.URL.Reveal(), "://"); ok {
		o.Path = path
	}
	if o.Path == "" {
		return nil, c.Errorf("", "no directory is named; write dir://box")
	}
	if !filepath.IsAbs(o.Path) {
		o.Path = filepath.Join(c.Dir, o.Path)
	}
	return New(o), nil
}
