// Command worker runs what a YAML file names, of the parts that are built in.
// A program with handlers of its own has the same commands: see worker.Main.
package main

import (
	"github.com/leat-io/leat/runtime/worker"
	"github.com/leat-io/leat/runtime/worker/builtin"
)

func main() { worker.Main(builtin.All()) }
