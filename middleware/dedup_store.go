package middleware

import (
	"context"
	"errors"
	"time"
)

// ErrLost is returned for a claim that has run out and that somebody else has
// taken over.
var ErrLost = errors.New("dedup claim lost")

// DedupStore remembers claims and what is done. All methods are safe for
// concurrent use. Scope and Key are valid UTF-8 without NUL, of at most 500
// and 128 bytes.
//
// A key is absent, claimed until its lease ends, or done until its window ends.
// A claim past its lease, and a done key past its window, are as good as absent.
// Time is the store's own.
type DedupStore interface {
	// Claim takes an absent key with a token higher than all before it, or
	// says who has it.
	Claim(ctx context.Context, k DedupKey, lease time.Duration) (DedupState, error)

	// Renew gives each claim another lease from now, but for those lost: their
	// Done will say so.
	Renew(ctx context.Context, lease time.Duration, claims ...DedupClaim) error

	// Done turns a claim into a done key with the claim's body. It returns
	// [ErrLost] after a takeover, and may be repeated.
	Done(ctx context.Context, c DedupClaim, window time.Duration) error

	// Release makes a claimed key absent; a claim that is lost stays the
	// other's.
	Release(ctx context.Context, c DedupClaim) error
}

// DedupKey names a message within a scope.
type DedupKey struct {
	Scope string
	Key   string
	Body  DedupBody // kept with the key, not a part of its name
}

// DedupBody is the beginning of the SHA-256 of a message's payload; zero where
// bodies are not to be compared.
type DedupBody [16]byte

// DedupClaim is a key that was claimed, and the claim's token.
type DedupClaim struct {
	DedupKey

	Token int64
}

// DedupStatus is what a store says of a key.
type DedupStatus uint8

// Values of DedupStatus.
const (
	DedupFresh DedupStatus = iota + 1 // claimed by this call
	DedupHeld                         // claimed by another one
	DedupDone                         // done before
)

// DedupState is the answer to a Claim.
type DedupState struct {
	Status DedupStatus
	Token  int64         // of DedupFresh
	Left   time.Duration // of DedupHeld: what is left of the lease
	Body   DedupBody     // of DedupDone
}
