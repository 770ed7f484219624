// Package kafka has Apache Kafka as a broker, on a consume loop of its own.
//
// Each partition that a member owns is a [spell]: records come in the log's
// order, and are settled in any. What is committed is the lowest offset that
// is not settled, and beside it, in the metadata of the commit, which ones
// above it are ([ahead]), so that whoever owns the partition next does not run
// them again. Commits are batched, and a Settle returns when one that covers
// it is confirmed.
//
// On the wire a message is what Watermill makes of it: metadata are headers,
// the id is a header of its own, and the message key is the record's.
package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/leat-io/leat/runtime/transport"
)

// Transport is one cluster. It connects when it is first used.
type Transport struct {
	o    Options
	dial func(ctx context.Context, network, address string) (net.Conn, error)
	log  *slog.Logger

	mu     sync.Mutex
	closed bool
	adm    *kadm.Client
	base   *kgo.Client              // of adm
	mode   transport.Topology       // of the last Declare
	begun  map[source]bool          // groups that had a position in a topic while this process ran
	topics map[string]topicSettings // that are known to be there
}

// source is a topic as one group reads it.
type source struct{ topic, group string }

var _ transport.Transport = (*Transport)(nil)

// New makes the transport of a cluster. Nothing is dialed yet; the error is
// about o alone. Warnings about topics go to log; nil: nowhere.
func New(o Options, log *slog.Logger) (*Transport, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	t := &Transport{o: o, log: log, begun: map[source]bool{}, topics: map[string]topicSettings{}}
	t.dial = t.o.dial
	return t, nil
}

// Kind is "kafka".
func (t *Transport) Kind() string { return "kafka" }

// Capabilities of a log. It cannot delay, and keeps no attempts: a message
// that waits stays parked in its partition.
func (t *Transport) Capabilities() transport.Capabilities {
	return transport.Capabilities{
		KeyOrder:          transport.ScopeGroup,
		Attempts:          transport.KeepProcess,
		StableCoordinates: true,
		ByteWindow:        true,
		History:           true,
		Depth:             true,
		Browse:            transport.BrowseReads,
		Replay:            true,
		Networked:         true,
		Durable:           true,
		MaxNameLength:     transport.MaxName,
	}
}

// admin is the client for everything but records.
func (t *Transport) admin() (*kadm.Client, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, fmt.Errorf("kafka broker: %w", transport.ErrClosed)
	}
	if t.adm == nil {
		c, err := t.client(kgo.RetryTimeout(retryTimeout), kgo.RequestTimeoutOverhead(retryTimeout))
		if err != nil {
			return nil, err
		}
		t.adm, t.base = kadm.NewClient(c), c
		t.adm.SetTimeoutMillis(int32(retryTimeout.Milliseconds())) //nolint:gosec // some thousands
	}
	return t.adm, nil
}

// OpenConsumer joins the group. Partitions come when the group has shared them
// out, and their owners have let go of them, which Receive waits for.
func (t *Transport) OpenConsumer(ctx context.Context, cfg transport.ConsumerConfig) (transport.Consumer, error) {
	if len(cfg.Topics) == 0 {
		return nil, transport.Refuse(fmt.Errorf("join group %q: no topics", cfg.Group))
	}
	if cfg.Topology == "" {
		cfg.Topology = transport.TopologyDeclare
	}
	ds := make([]transport.Declaration, len(cfg.Topics))
	for i, topic := range cfg.Topics {
		ds[i] = transport.Declaration{Topic: topic, Group: cfg.Group, Start: cfg.Start}
		if err := errors.Join(transport.CheckName("topic", topic), transport.CheckName("group", cfg.Group)); err != nil {
			return nil, transport.Refuse(err)
		}
	}
	if err := t.Declare(ctx, cfg.Topology, ds...); err != nil {
		return nil, err
	}
	if cfg.Topology == transport.TopologyOff {
		if err := t.checkTopics(ctx, cfg.Topics); err != nil {
			return nil, err
		}
	}
	if err := t.checkGroup(ctx, cfg.Group); err != nil {
		return nil, err
	}
	return t.join(ctx, cfg)
}

// Close gives up connections.
func (t *Transport) Close(context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	if t.adm != nil {
		t.adm.Close()
		t.adm = nil
	}
	return nil
}
