package worker

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"

	"github.com/leat-io/leat/runtime/transport"
)

// line is one message to publish, or why there is none.
type line struct {
	number int // in the input, from 1; 0 where there are no lines
	msg    *message.Message
	err    error
}

const (
	maxLine  = 64 << 20
	maxBatch = 500
)

// readLines reads JSON lines in the background, so that what is there goes out
// together and nothing that is there waits for what is not.
func readLines(r io.Reader, headers message.Metadata) <-chan line {
	out := make(chan line, maxBatch)
	go func() {
		defer close(out)
		s := bufio.NewScanner(r)
		s.Buffer(make([]byte, 0, 64<<10), maxLine)
		n := 0
		for s.Scan() {
			n++
			if len(bytes.TrimSpace(s.Bytes())) == 0 {
				continue
			}
			m, err := parseLine(s.Bytes(), headers)
			out <- line{number: n, msg: m, err: err}
			if err != nil {
				return
			}
		}
		err := s.Err()
		if errors.Is(err, bufio.ErrTooLong) {
			err = fmt.Errorf("is longer than %d MiB; publish its payload by --file", maxLine>>20)
		}
		if err != nil {
			out <- line{number: n + 1, err: err}
		}
	}()
	return out
}

// parseLine reads {"id", "key", "headers", "payload"}.
func parseLine(text []byte, headers message.Metadata) (*message.Message, error) {
	var l struct {
		ID      string            `json:"id"`
		Key     string            `json:"key"`
		Headers map[string]string `json:"headers"`
		Payload json.RawMessage   `json:"payload"`
	}
	if !utf8.Valid(text) {
		return nil, errors.New("is not UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&l); err != nil {
		return nil, lineError(err)
	}
	if d.More() || d.InputOffset() != int64(len(bytes.TrimRight(text, " \t\r"))) {
		return nil, errors.New("holds more than one JSON object")
	}
	if l.Payload == nil {
		return nil, errors.New(`has no "payload"`)
	}
	for _, name := range slices.Sorted(maps.Keys(l.Headers)) {
		if err := checkHeader(name); err != nil {
			return nil, err
		}
	}
	payload := []byte(l.Payload)
	if payload[0] == '"' {
		var s string
		if err := json.Unmarshal(payload, &s); err != nil {
			return nil, lineError(err)
		}
		payload = []byte(s)
	}
	m := &message.Message{UUID: l.ID, Payload: payload, Metadata: message.Metadata{}}
	maps.Copy(m.Metadata, headers)
	maps.Copy(m.Metadata, l.Headers)
	if l.Key != "" {
		m.Metadata[transport.KeyHeader] = l.Key
	}
	if m.UUID == "" {
		m.UUID = uuid.NewString()
	}
	return m, nil
}

// checkHeader refuses a name that not every broker carries, or that no log
// line shows as it is.
func checkHeader(name string) error {
	switch {
	case name == "":
		return errors.New("a header without a name")
	case !utf8.ValidString(name):
		return fmt.Errorf("the header name %q is not UTF-8", name)
	case strings.ContainsFunc(name, unicode.IsControl):
		return fmt.Errorf("the header name %q has a control character", name)
	}
	return nil
}

// lineError says what is wrong with a line, in words that are not Go's.
func lineError(err error) error {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && wrong.Field != "" {
		return fmt.Errorf("%q is a %s, and has to be a %s", wrong.Field, wrong.Value, wrong.Type)
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("ends within a JSON object")
	}
	return fmt.Errorf(`is not a JSON object {"id", "key", "headers", "payload"}: %s`, strings.TrimPrefix(err.Error(), "json: "))
}

// sender publishes lines in batches and in order.
type sender struct {
	producer  transport.Producer
	topic     string
	pace      pacer
	ids       io.Writer // nil: not printed
	published int
}

func (s *sender) send(ctx context.Context, lines <-chan line) error {
	for {
		batch, err := s.next(ctx, lines)
		if len(batch) > 0 {
			if err := s.publish(ctx, batch); err != nil {
				return fmt.Errorf("%w; published %d", err, s.published)
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("%w; published %d", err, s.published)
		}
	}
}

// next waits for a line and takes what else is there, as the pace allows. The
// error is why there will be no more.
func (s *sender) next(ctx context.Context, lines <-chan line) (batch []*message.Message, err error) {
	for allowed := 1; len(batch) < allowed; {
		var l line
		var more bool
		if len(batch) == 0 {
			select {
			case l, more = <-lines:
			case <-ctx.Done():
				return nil, errors.New("interrupted")
			}
		} else {
			select {
			case l, more = <-lines:
			default:
				return batch, nil
			}
		}
		switch {
		case !more:
			return batch, io.EOF
		case l.err != nil:
			return batch, fmt.Errorf("line %d: %w", l.number, l.err)
		}
		if len(batch) == 0 {
			if allowed, err = s.pace.wait(ctx); err != nil {
				return nil, err
			}
		}
		batch = append(batch, l.msg)
	}
	return batch, nil
}

func (s *sender) publish(ctx context.Context, batch []*message.Message) error {
	ctx, cancel := context.WithTimeout(ctx, brokerTimeout)
	defer cancel()
	err := s.producer.Publish(ctx, s.topic, batch...)
	failed := map[int]bool{}
	if partly, ok := errors.AsType[*transport.PublishError](err); ok {
		for _, f := range partly.Failed {
			failed[f.Index] = true
		}
	} else if err != nil {
		return fmt.Errorf("publish to %q: %w", s.topic, err)
	}
	for i, m := range batch {
		if failed[i] {
			continue
		}
		s.published++
		if s.ids != nil {
			if _, err := fmt.Fprintln(s.ids, m.UUID); err != nil {
				return err
			}
		}
	}
	s.pace.sent(len(batch))
	return err
}

// pacer lets messages go one interval apart.
type pacer struct {
	interval time.Duration // 0: no limit
	due      time.Time     // when the next one may go
}

// wait returns when at least one may go, and how many may by now: more than
// one where the last batch took longer than its messages' intervals.
func (p *pacer) wait(ctx context.Context) (int, error) {
	if p.interval == 0 {
		return maxBatch, nil
	}
	now := time.Now()
	if p.due.Before(now.Add(-time.Second)) {
		p.due = now // a pause of the input is not made up for
	}
	if early := p.due.Sub(now); early > 0 {
		select {
		case now = <-time.After(early):
		case <-ctx.Done():
			return 0, errors.New("interrupted")
		}
	}
	return min(maxBatch, 1+int(now.Sub(p.due)/p.interval)), nil
}

func (p *pacer) sent(n int) { p.due = p.due.Add(time.Duration(n) * p.interval) }

// rate is the time between messages, written N/s, N/m or N/h.
type rate time.Duration

// UnmarshalText reads it.
func (r *rate) UnmarshalText(text []byte) error {
	number, unit, _ := strings.Cut(string(text), "/")
	units := map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour}
	n, err := strconv.ParseFloat(number, 64)
	if err != nil || units[unit] == 0 || !(n >= 0.001 && n <= 1e9) { // NaN is neither
		return fmt.Errorf("%q is not a rate; write it like 100/s, 30/m or 10/h", text)
	}
	*r = rate(float64(units[unit]) / n)
	return nil
}
