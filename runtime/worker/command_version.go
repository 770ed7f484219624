package worker

import (
	"fmt"
	goruntime "runtime"
	"runtime/debug"
)

const module = "github.com/leat-io/leat"

type versionCommand struct{}

// Run prints one line.
func (versionCommand) Run(p *process) error {
	_, err := fmt.Fprintf(p.out, "leat %s %s %s/%s\n", version(), goruntime.Version(), goruntime.GOOS, goruntime.GOARCH)
	return err
}

// version is that of this module within the program; "(devel)" where it was
// built from a checkout.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "(unknown)"
	}
	if info.Main.Path == module && info.Main.Version != "" {
		return info.Main.Version
	}
	for _, d := range info.Deps {
		if d.Path == module && d.Replace == nil {
			return d.Version
		}
	}
	return "(devel)"
}
