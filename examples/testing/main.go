// Command testing is a worker with a test that needs no broker.
package main

import (
	"context"

	"github.com/leat-io/leat/runtime/worker"
	"github.com/leat-io/leat/runtime/worker/builtin"
)

func main() { worker.Main(parts(patientBank{})...) }

// parts is everything that worker.yaml names. The test gives it another bank.
func parts(b Bank) []worker.Option {
	return []worker.Option{builtin.All(), worker.Handle("charge", charge(b))}
}

// patientBank stands for the client of a real one.
type patientBank struct{}

// Charge agrees.
func (patientBank) Charge(context.Context, string, int64) error { return nil }
