// Command testworker is tried by package conformance.
package main

import (
	"github.com/leat-io/leat/examples/transport-dir/dir"
	"github.com/leat-io/leat/runtime/conformance/probe"
	"github.com/leat-io/leat/runtime/worker"
)

func main() { probe.Main(worker.Parts(worker.Table{Transports: []worker.TransportKind{dir.Kind()}})) }
