// Command testworker is a worker with all built-in transports, for package
// conformance to start, stop and kill.
package main

import (
	"github.com/leat-io/leat/runtime/conformance/probe"
	"github.com/leat-io/leat/runtime/worker/builtin"
)

func main() { probe.Main(builtin.All()) }
