package worker

import (
	"fmt"
	goruntime "runtime"
	"runtime/debug"
)

const module = "github.com/leat-io/leat"

type versionCommand struct{ outputFlag }

// Run prints one line, or an object.
func (c *versionCommand) Run(p *process) error {
	v := struct {
		Version string `json:"version"`
		Go      string `json:"go"`
		OS      string `json:"os"`
		Arch    string `json:"arch"`
	}{version(), goruntime.Version(), goruntime.GOOS, goruntime.GOARCH}
	if c.json() {
		return printJSON(p.out, v)
	}
	_, err := fmt.Fprintf(p.out, "leat %s %s %s/%s\n", v.Version, v.Go, v.OS, v.Arch)
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
