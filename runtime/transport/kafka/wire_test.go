package kafka_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/leat-io/leat/internal/brokertest"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/kafka"
)

func (w *world) producer() transport.Producer {
	w.t.Helper()
	p, err := w.connect().OpenProducer(w.t.Context())
	require.NoError(w.t, err)
	w.t.Cleanup(func() { require.NoError(w.t, p.Close(within(w.t))) })
	return p
}

// records reads n of a topic as a plain client.
func (w *world) records(topic string, n int) []*kgo.Record {
	w.t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(w.o.Brokers...), kgo.ConsumeTopics(topic))
	require.NoError(w.t, err)
	defer cl.Close()
	var rs []*kgo.Record
	for len(rs) < n {
		fs := cl.PollFetches(within(w.t))
		require.NoError(w.t, fs.Err())
		rs = append(rs, fs.Records()...)
	}
	return rs
}

func header(name string, value []byte) kgo.RecordHeader {
	return kgo.RecordHeader{Key: name, Value: value}
}

// TestHeadersSurviveADeadLetter: what metadata cannot hold, names that repeat
// and values that are null, is in the copy as it was, and so are key, tombstone
// and bytes that are no UTF-8.
func TestHeadersSurviveADeadLetter(t *testing.T) {
	t.Parallel()
	w, _ := fake(t, 1)
	original := []kgo.RecordHeader{
		header("trace", []byte("1")), header("null", nil), header("trace", []byte("2")), header("empty", []byte{}),
		header("bytes", []byte("\xff\x00")), header("\xfe", []byte("v")), header("trace", nil), header("trace", []byte("3")),
	}
	require.NoError(t, w.raw.ProduceSync(within(t), &kgo.Record{Topic: w.topic, Key: []byte("\xffk"), Headers: original}).FirstErr())
	c := w.join(w.connect())
	d := w.receive(c, 1)[0]
	require.Nil(t, d.Payload)
	require.Equal(t, "\xffk", d.Key)
	require.Equal(t, "3", d.Headers.Get("trace"))
	require.Contains(t, d.Headers, transport.Header{Name: "trace", Value: "1"})

	dead := transport.DeadMessage(d.ID, d.Payload, d.Headers.Map(), transport.DeadInfo{Reason: transport.ReasonPermanent, Err: errors.New("no"), Topic: d.Topic})
	require.NoError(t, w.producer().Publish(within(t), w.topic+"--dead", dead))
	r := w.records(w.topic+"--dead", 1)[0]
	require.Nil(t, r.Value)
	require.Equal(t, "\xffk", string(r.Key))
	require.Equal(t, original, r.Headers[:len(original)])
	for _, h := range r.Headers[len(original):] {
		require.NotContains(t, h.Key, "leat_kafka")
	}

	changed := maps.Clone(map[string]string(dead.Metadata))
	changed["trace"] = "mine"
	delete(changed, "null")
	require.NoError(t, w.producer().Publish(within(t), w.topic+"-changed", &message.Message{UUID: "x", Metadata: changed}))
	got := map[string][]string{}
	for _, h := range w.records(w.topic+"-changed", 1)[0].Headers {
		got[h.Key] = append(got[h.Key], string(h.Value))
	}
	require.Equal(t, []string{"mine"}, got["trace"], "what was changed is as it was changed")
	require.NotContains(t, got, "null")
	require.Equal(t, []string{"\xff\x00"}, got["bytes"])
}

// TestIDs: by Watermill's header, else CloudEvents', else the coordinates.
func TestIDs(t *testing.T) {
	t.Parallel()
	w, _ := fake(t, 1)
	for _, hs := range [][]kgo.RecordHeader{
		{header("_watermill_message_uuid", []byte("wm")), header("ce_id", []byte("ce"))},
		{header("ce_id", []byte("1")), header("ce_source", []byte("/shop"))},
		{header("_watermill_message_uuid", nil)},
		nil,
	} {
		require.NoError(t, w.raw.ProduceSync(within(t), &kgo.Record{Topic: w.topic, Headers: hs}).FirstErr())
	}
	ds := w.receive(w.join(w.connect()), 4)
	require.Equal(t, "wm", ds[0].ID)
	require.Equal(t, "/shop#1", ds[1].ID)
	require.Regexp(t, "^"+w.topic+"/0/2@[0-9a-f]{32}$", ds[2].ID)
	require.Regexp(t, "^"+w.topic+"/0/3@[0-9a-f]{32}$", ds[3].ID)
}

// TestKeysLandWhereJavaPutsThem: partitions of known keys by Java's murmur2.
func TestKeysLandWhereJavaPutsThem(t *testing.T) {
	t.Parallel()
	w, _ := fake(t, 7)
	// toPositive(murmur2(key)) % 7, from Utils.murmur2 of the Java client.
	hashes := map[string]int32{"21": -973932308, "foobar": -790332482, "a-little-bit-long-string": -985981536, "a-little-bit-longer-string": -1486304829, "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971, "abc": 479470107}
	p := w.producer()
	for key := range hashes {
		m := message.NewMessage(key, nil)
		m.Metadata.Set(transport.KeyHeader, key)
		require.NoError(t, p.Publish(within(t), w.topic, m))
	}
	for _, r := range w.records(w.topic, len(hashes)) {
		require.Equal(t, (hashes[string(r.Key)]&0x7fffffff)%7, r.Partition, "key %s", r.Key)
	}
}

// TestPublishErrors: each is of the message that it is about, and permanent
// only where no later try can help.
func TestPublishErrors(t *testing.T) {
	t.Parallel()
	each(t, 1, func(w *world) {
		t := w.t
		made, err := w.adm.CreateTopic(t.Context(), 1, -1, map[string]*string{"max.message.bytes": new("2000")}, w.topic+"-small")
		require.NoError(t, err, made.ErrMessage)
		p := w.producer()
		publish := func(topic string, sizes ...int) *transport.PublishError {
			msgs := make([]*message.Message, len(sizes))
			for i, n := range sizes {
				msgs[i] = message.NewMessage(fmt.Sprint("m-", i), bytes.Repeat([]byte{byte(i)}, n))
			}
			err := p.Publish(within(t), topic, msgs...)
			if err == nil {
				return nil
			}
			var pe *transport.PublishError
			require.ErrorAs(t, err, &pe)
			return pe
		}
		require.Nil(t, publish(w.topic, 1<<20-200), "nearly the broker's limit")
		pe := publish(w.topic, 10, 2<<20, 10)
		require.Len(t, pe.Failed, 1)
		require.Equal(t, 1, pe.Failed[0].Index)
		require.True(t, pe.Failed[0].Permanent)
		require.ErrorIs(t, pe, kerr.MessageTooLarge)

		require.Nil(t, publish(w.topic+"-small", 900, 900, 900, 900), "more than one batch holds")
		pe = publish(w.topic+"-small", 900, 2100, 900)
		require.Len(t, pe.Failed, 1)
		require.True(t, pe.Failed[0].Permanent)
		require.ErrorContains(t, pe, "takes 2000")
		require.Len(t, w.records(w.topic+"-small", 6), 6)
	})
}

// TestPublishFailures: what brokers say, and what becomes of it.
func TestPublishFailures(t *testing.T) {
	t.Parallel()
	for code, permanent := range map[*kerr.Error]bool{
		kerr.TopicAuthorizationFailed: true, kerr.InvalidRecord: true, kerr.PolicyViolation: true, kerr.ClusterAuthorizationFailed: true,
		kerr.UnknownServerError: false, kerr.MessageTooLarge: false,
	} {
		t.Run(code.Message, func(t *testing.T) {
			t.Parallel()
			w, cluster := fake(t, 1)
			cluster.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
				req := r.(*kmsg.ProduceRequest) //nolint:forcetypeassert // by its key
				resp := req.ResponseKind().(*kmsg.ProduceResponse)
				for _, rt := range req.Topics {
					st := kmsg.NewProduceResponseTopic()
					st.Topic, st.TopicID = rt.Topic, rt.TopicID
					for _, rp := range rt.Partitions {
						sp := kmsg.NewProduceResponseTopicPartition()
						sp.Partition, sp.ErrorCode = rp.Partition, code.Code
						st.Partitions = append(st.Partitions, sp)
					}
					resp.Topics = append(resp.Topics, st)
				}
				return resp, nil, true
			})
			p := w.producer()
			err := p.Publish(within(t), w.topic, message.NewMessage("m", []byte("x")))
			var pe *transport.PublishError
			require.ErrorAs(t, err, &pe)
			require.Equal(t, permanent, pe.Failed[0].Permanent, "%v", err)
			require.NoError(t, p.Publish(within(t), w.topic, message.NewMessage("m", []byte("x"))), "and the next one goes")
		})
	}
}

// TestPublishMeetsAnOutage: what waiting may mend is never permanent, whatever
// it would be when a worker starts.
func TestPublishMeetsAnOutage(t *testing.T) {
	t.Parallel()
	publish := func(w *world, topic string) (permanent bool) {
		err := w.producer().Publish(within(w.t), topic, message.NewMessage("m", []byte("x")))
		require.Error(w.t, err)
		pe, ok := errors.AsType[*transport.PublishError](err)
		return ok && pe.Failed[0].Permanent
	}
	for code, permanent := range map[*kerr.Error]bool{
		kerr.InvalidReplicationFactor: false, kerr.InvalidPartitions: false,
		kerr.TopicAuthorizationFailed: true, kerr.PolicyViolation: true, kerr.InvalidTopicException: true,
	} {
		t.Run(code.Message, func(t *testing.T) {
			t.Parallel()
			w, cluster := fake(t, 1)
			cluster.ControlKey(int16(kmsg.CreateTopics), func(r kmsg.Request) (kmsg.Response, error, bool) {
				req := r.(*kmsg.CreateTopicsRequest) //nolint:forcetypeassert // by its key
				resp := req.ResponseKind().(*kmsg.CreateTopicsResponse)
				st := kmsg.NewCreateTopicsResponseTopic()
				st.Topic, st.ErrorCode = req.Topics[0].Topic, code.Code
				resp.Topics = append(resp.Topics, st)
				return resp, nil, true
			})
			require.Equal(t, permanent, publish(w, w.topic+"-new"))
		})
	}
	t.Run("certificate", func(t *testing.T) {
		t.Parallel()
		w, _ := fake(t, 1)
		w.o.Brokers, w.o.TLS = cluster(t, kfake.TLS(newAuthority(t).server())).ListenAddrs(), &kafka.TLS{}
		require.False(t, publish(w, w.topic))
	})
	t.Run("name", func(t *testing.T) {
		t.Parallel()
		w, _ := fake(t, 1)
		require.True(t, publish(w, "no name"))
	})
}

// TestDeadLetterTopic: one that is made keeps what it gets.
func TestDeadLetterTopic(t *testing.T) {
	t.Parallel()
	w := newWorld(t, brokertest.URL(t, "kafka"), 1)
	w.o.MinISR, w.o.Replication = 1, 1
	tr := w.connect()
	dead := w.topic + "--dead"
	require.NoError(t, tr.Declare(within(t), transport.TopologyDeclare, transport.Declaration{Topic: dead, DeadLetter: true}))
	configs, err := w.adm.DescribeTopicConfigs(within(t), dead)
	require.NoError(t, err)
	got := map[string]string{}
	for _, c := range configs[0].Configs {
		got[c.Key] = c.MaybeValue()
	}
	require.Equal(t, "-1", got["retention.ms"])
	require.Equal(t, "delete", got["cleanup.policy"])
	require.Equal(t, "1", got["min.insync.replicas"])

	var log said
	verifying, err := kafka.New(w.o, slog.New(slog.NewTextHandler(&log, nil)))
	require.NoError(t, err)
	defer func() { require.NoError(t, verifying.Close(within(t))) }()
	require.NoError(t, verifying.Declare(within(t), transport.TopologyVerify, transport.Declaration{Topic: dead, DeadLetter: true}))
	require.Contains(t, log.String(), "it has one copy")
	require.Contains(t, log.String(), "min.insync.replicas is 1")
}

// TestBombs: a batch that grows beyond max_batch_bytes, or many that do so
// together, do not fill the memory; the first stands still, the others come.
func TestBombs(t *testing.T) {
	t.Parallel()
	w, _ := fake(t, 2)
	w.o.MaxBatchBytes = 4 << 20
	early := w.join(w.connect())
	idle, err := kafka.PollOnce(within(t), early, 1)
	require.NoError(t, err)
	require.True(t, idle)
	require.EqualValues(t, 1, kafka.Inflated(early), "a poll that takes nothing makes no room")
	require.NoError(t, early.Close(within(t)))
	bomber, err := kgo.NewClient(kgo.SeedBrokers(w.o.Brokers...), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(kgo.ZstdCompression()), kgo.ProducerBatchMaxBytes(64<<20), kgo.BrokerMaxWriteBytes(100<<20), kgo.MaxBufferedBytes(1<<30))
	require.NoError(t, err)
	defer bomber.Close()
	for range 20 { // each is within the bound
		require.NoError(t, bomber.ProduceSync(within(t), &kgo.Record{Topic: w.topic, Partition: 0, Value: make([]byte, 3<<20)}).FirstErr())
	}
	require.NoError(t, bomber.ProduceSync(within(t), &kgo.Record{Topic: w.topic, Partition: 1, Value: make([]byte, 40<<20)}).FirstErr())
	var log said
	c := w.join(w.connect(), logTo(&log))
	ds := w.receive(c, 1)
	require.LessOrEqual(t, kafka.Inflated(c), int64(w.o.MaxBatchBytes+(3<<20)+1000), "grown at once")
	for _, d := range append(ds, w.receive(c, 19)...) {
		require.EqualValues(t, 0, d.Partition)
		require.Len(t, d.Payload, 3<<20)
		settle(t, c, transport.Ack, d)
	}
	w.quiet(c)
	require.Contains(t, log.String(), "a compressed batch at offset 0 is larger than max_batch_bytes")
	require.Contains(t, log.String(), "partition=1")
	partial, ok := c.(transport.Partial)
	require.True(t, ok)
	why, since := partial.LeftOut()
	require.Contains(t, why, "stands still: a compressed batch at offset 0")
	require.Contains(t, why, "set the group's position to 1")
	require.NotZero(t, since)

	_, err = w.adm.DeleteRecords(t.Context(), kadm.Offsets{w.topic: {1: {Topic: w.topic, Partition: 1, At: 1}}})
	require.NoError(t, err)
	_, err = c.Receive(within(t), 1, 1<<20)
	require.ErrorContains(t, err, "which the log has dropped")
}
