package kafka

import (
	"errors"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kgo"
)

// inflater bounds what compressed batches grow to between two polls. The
// client's own bound is on each batch, and a fetch may have thousands. What is
// beyond is fetched again when the rest was taken.
type inflater struct {
	kgo.Decompressor

	limit int64
	grown atomic.Int64 // since the last poll
}

// errInflated is the inflater's no: a wait, and no failure.
var errInflated = errors.New("enough is decompressed for now")

// Decompress is a no while too much is held; a batch that comes first is let in.
func (i *inflater) Decompress(src []byte, codec kgo.CompressionCodecType) ([]byte, error) {
	if i.grown.Load() > i.limit {
		return nil, errInflated
	}
	out, err := i.Decompressor.Decompress(src, codec)
	i.grown.Add(int64(len(out)))
	return out, err
}
