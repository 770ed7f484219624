package badtransport

import "github.com/leat-io/leat/runtime/transport"

// Fault is one broken promise.
type Fault struct {
	Name string
	// Caught is the case that is there to find it. Also has others that rest
	// on the same promise; Broad is for a fault on which most of them do.
	Caught string
	Also   []string
	Broad  bool
	// New begins with a fresh broker, and gives what breaks each connection to it.
	New func() func(transport.Transport) transport.Transport
}

// All are the faults that the suite is known to find.
func All() []Fault {
	all := publishing()
	all = append(all, receiving()...)
	all = append(all, settling()...)
	all = append(all, owning()...)
	return append(all, opening()...)
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
