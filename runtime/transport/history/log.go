package history

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/leat-io/leat/runtime/transport"
)

// Log is the record of one process. All methods are safe for concurrent use.
type Log struct {
	proc  string
	began time.Time

	mu     sync.Mutex
	file   *os.File // nil: in memory
	events []Event
	err    error
	hands  map[*transport.Delivery]int64 // of what is not settled
	handed int64
}

// NewLog begins a record in memory.
func NewLog(proc string) *Log {
	return &Log{proc: proc, began: time.Now(), hands: map[*transport.Delivery]int64{}}
}

// OpenLog begins a record in a file of its own in dir, which outlives a
// process that is killed. No two processes may have the same name.
func OpenLog(dir, proc string) (*Log, error) {
	f, err := os.OpenFile(filepath.Join(dir, proc+suffix), os.O_CREATE|os.O_EXCL|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	l := NewLog(proc)
	l.file = f
	return l, nil
}

const suffix = ".history"

// Add records an event that happens now: it fills in At, and Proc unless the
// event is of another process.
func (l *Log) Add(e Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e.At, e.Proc = l.began.Add(time.Since(l.began)), cmp.Or(e.Proc, l.proc)
	if l.file == nil {
		l.events = append(l.events, e)
		return
	}
	line, err := json.Marshal(e)
	if err == nil {
		_, err = l.file.Write(append(line, '\n')) // in one write, so that none is torn
	}
	l.err = errors.Join(l.err, err)
}

// of gives an event its delivery.
func (l *Log) of(d *transport.Delivery, e Event) Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hands[d] == 0 {
		l.handed++
		l.hands[d] = l.handed
	}
	e.Hand, e.ID, e.Key = l.hands[d], d.ID, d.Key
	e.Topic, e.Partition, e.Offset = d.Topic, d.Partition, d.Offset
	return e
}

// held tells whether a delivery has been recorded, and not yet as settled.
func (l *Log) held(d *transport.Delivery) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hands[d] != 0
}

func (l *Log) forget(d *transport.Delivery) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.hands, d)
}

// Events are those in memory so far.
func (l *Log) Events() []Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.events)
}

// Close ends the record, and says whether all of it was written.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return nil
	}
	err := errors.Join(l.err, l.file.Close())
	l.file, l.err = nil, nil
	return err
}

// Dir reads the files of a folder as they grow.
type Dir struct {
	path string
	read map[string]int64 // bytes of each file
}

// NewDir reads the logs that are opened in a folder.
func NewDir(path string) *Dir { return &Dir{path: path, read: map[string]int64{}} }

// Next gives what was written since it was last called, file by file. A line
// that a killed process has not finished is left out.
func (d *Dir) Next() ([]Event, error) {
	names, err := filepath.Glob(filepath.Join(d.path, "*"+suffix))
	if err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	var all []Event
	for _, name := range names {
		events, err := d.rest(name)
		if err != nil {
			return nil, err
		}
		all = append(all, events...)
	}
	return all, nil
}

func (d *Dir) rest(name string) ([]Event, error) {
	content, err := readFrom(name, d.read[name])
	if err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	content = content[:bytes.LastIndexByte(content, '\n')+1]
	var events []Event
	for line := range bytes.Lines(content) {
		var e Event
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("history: %s, after byte %d: %w", name, d.read[name], err)
		}
		events = append(events, e)
		d.read[name] += int64(len(line))
	}
	return events, nil
}

func readFrom(name string, offset int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	content := make([]byte, max(0, info.Size()-offset))
	n, err := f.ReadAt(content, offset)
	if len(content) > 0 && n == len(content) {
		err = nil
	}
	return content[:n], errors.Join(err, f.Close())
}
