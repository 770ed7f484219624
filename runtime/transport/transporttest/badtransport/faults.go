package badtransport

import (
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/transporttest"
)

// Fault is one broken promise.
type Fault struct {
	Name string
	// Caught is the case that is there to find it. Also has others that rest
	// on the same promise; Broad is for a fault on which most of them do.
	Caught string
	Also   []string
	Broad  bool
	// New begins with a fresh broker, and gives what breaks each connection to
	// it; nil if the broker itself is broken.
	New func() func(transport.Transport) transport.Transport
	// Broker breaks what a broker does when a hook of it is used; nil: nothing.
	Broker func(*transporttest.Broker)
}

// All are the faults that the suite is known to find.
func All() []Fault {
	all := publishing()
	all = append(all, receiving()...)
	all = append(all, settling()...)
	all = append(all, owning()...)
	all = append(all, opening()...)
	return append(all, enduring()...)
}

// stateless is New for a fault that remembers nothing.
func stateless(b bad) func() func(transport.Transport) transport.Transport {
	return func() func(transport.Transport) transport.Transport {
		return func(tr transport.Transport) transport.Transport {
			wrapped := b
			wrapped.Transport = tr
			return &wrapped
		}
	}
}

// stateful is New for one whose state all connections to a broker share.
func stateful(begin func() bad) func() func(transport.Transport) transport.Transport {
	return func() func(transport.Transport) transport.Transport { return stateless(begin())() }
}
