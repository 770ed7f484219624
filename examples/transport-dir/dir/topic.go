package dir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/leat-io/leat/runtime/transport"
)

var errMissing = errors.New("is not there: create it, or set topology to declare")

// topic is the folder of one.
type topic struct {
	name, dir  string
	partitions int
}

func (t *Transport) topic(name string) (*topic, error) {
	if err := transport.CheckName("topic", name); err != nil {
		return nil, err // no path is made of it
	}
	tp := &topic{name: name, dir: filepath.Join(t.o.Path, name)}
	n, err := readNumber(filepath.Join(tp.dir, "partitions"))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("topic %q %w", name, errMissing)
	case err != nil:
		return nil, fmt.Errorf("topic %q: %w", name, err)
	}
	tp.partitions = int(n)
	return tp, nil
}

// makeTopic prepares the whole folder aside, so that who is first with its
// rename decides on the partitions.
func (t *Transport) makeTopic(name string) (*topic, error) {
	if tp, err := t.topic(name); !errors.Is(err, errMissing) {
		return tp, err
	}
	if err := os.MkdirAll(t.o.Path, 0o700); err != nil {
		return nil, err
	}
	err := prepare(filepath.Join(t.o.Path, name), t.o.Path, func(aside string) error {
		errs := []error{os.Mkdir(filepath.Join(aside, "groups"), 0o700), writeNumber(filepath.Join(aside, "partitions"), int64(t.o.Partitions))}
		for p := range t.o.Partitions {
			part := filepath.Join(aside, strconv.Itoa(p))
			errs = append(errs, os.Mkdir(part, 0o700), writeNumber(filepath.Join(part, "end"), 0))
		}
		return errors.Join(errs...)
	})
	if err != nil {
		return nil, err
	}
	tp, err := t.topic(name)
	if errors.Is(err, errMissing) {
		return nil, transport.Refuse(fmt.Errorf("%s is there and holds no topic: move it away", filepath.Join(t.o.Path, name)))
	}
	return tp, err
}

func (tp *topic) group(name string) (folder string, err error) {
	if err := transport.CheckName("group", name); err != nil {
		return "", err
	}
	folder = filepath.Join(tp.dir, "groups", name)
	if _, err := os.Stat(folder); errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("group %q of topic %q %w", name, tp.name, errMissing)
	} else if err != nil {
		return "", fmt.Errorf("group %q of topic %q: %w", name, tp.name, err)
	}
	return folder, nil
}

// makeGroup gives a new group its position; one that is there keeps its own.
func (tp *topic) makeGroup(name string, start transport.Start) error {
	if _, err := tp.group(name); !errors.Is(err, errMissing) {
		return err
	}
	return prepare(filepath.Join(tp.dir, "groups", name), tp.dir, func(aside string) error {
		for p := range tp.partitions {
			st := newState()
			if start == transport.StartLatest {
				end, err := tp.end(p)
				if err != nil {
					return err
				}
				st.Done.add(0, end)
			}
			if err := st.save(statePath(aside, p)); err != nil {
				return err
			}
		}
		return nil
	})
}

// prepare fills a folder and puts it in its place, unless there is one. The
// sign ~ is in no legal name.
func prepare(place, near string, fill func(aside string) error) error {
	aside, err := os.MkdirTemp(near, "new~")
	if err != nil {
		return err
	}
	if err = fill(aside); err == nil {
		err = os.Rename(aside, place)
	}
	if err == nil {
		return nil
	}
	if _, there := os.Stat(place); there == nil { // another was first
		err = nil
	}
	return errors.Join(err, os.RemoveAll(aside))
}

func (tp *topic) file(partition int, name string) string {
	return filepath.Join(tp.dir, strconv.Itoa(partition), name)
}

// end is one above the last message that is confirmed. What lies at or above
// it is not there yet.
func (tp *topic) end(partition int) (int64, error) { return readNumber(tp.file(partition, "end")) }

func (tp *topic) message(partition int, offset int64) string {
	return tp.file(partition, fmt.Sprintf("%020d", offset))
}

// read gives the message at an offset, as a delivery without an assignment.
func (tp *topic) read(partition int, offset int64) (*transport.Delivery, error) {
	file, err := os.ReadFile(tp.message(partition, offset))
	if err != nil {
		return nil, err
	}
	d := &transport.Delivery{Topic: tp.name, Partition: int32(partition), Offset: offset} //nolint:gosec // at most 64
	decode(d, file)
	if d.ID == "" {
		d.ID = d.Coordinates()
	}
	return d, nil
}

// A number is kept as what a symbolic link points to: it is read and replaced
// at once, without a block of the disk.
func readNumber(path string) (int64, error) {
	text, err := os.Readlink(path)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	return n, nil
}

func writeNumber(path string, n int64) error {
	if err := os.Remove(path + "~"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err // left by who was killed
	}
	if err := os.Symlink(strconv.FormatInt(n, 10), path+"~"); err != nil {
		return err
	}
	return os.Rename(path+"~", path)
}

// replace changes a file at once for all who read it. One at a time may write it.
func replace(path string, content []byte) error {
	if err := os.WriteFile(path+"~", content, 0o600); err != nil {
		return err
	}
	return os.Rename(path+"~", path)
}
