// Command transport-dir is a worker whose broker is a directory: the built-in
// parts, and one kind more.
package main

import (
	"context"
	"fmt"

	"github.com/leat-io/leat/examples/transport-dir/dir"
	"github.com/leat-io/leat/handlers"
	"github.com/leat-io/leat/runtime/worker"
	"github.com/leat-io/leat/runtime/worker/builtin"
)

func main() {
	worker.Main(builtin.All(),
		worker.Parts(worker.Table{Transports: []worker.TransportKind{dir.Kind()}}),
		worker.Handle("charge", handlers.JSON(charge)),
	)
}

type order struct {
	ID    string `json:"id"`
	Total int64  `json:"total"`
}

func charge(_ context.Context, o order) error {
	if o.Total <= 0 {
		return handlers.Permanent(fmt.Errorf("order %s has no total", o.ID))
	}
	fmt.Printf("order %s: charged %d\n", o.ID, o.Total)
	return nil
}
