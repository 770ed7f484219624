package middleware

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/tidwall/gjson"

	"github.com/leat-io/leat/runtime/transport"
)

// Longest key and scope that stores are given, in bytes; longer ones are
// hashed. Together they fit an index key of every database.
const (
	maxKey   = 128
	maxScope = 500
)

// dedupKey reads the key of a message: one of its three.
type dedupKey struct {
	isID     bool
	metadata string
	payload  string
}

func parseDedupKey(s string) (dedupKey, error) {
	if s == "" || s == "id" {
		return dedupKey{isID: true}, nil
	}
	if name, ok := strings.CutPrefix(s, "metadata."); ok && name != "" {
		return dedupKey{metadata: name}, nil
	}
	if path, ok := strings.CutPrefix(s, "payload."); ok && path != "" {
		if strings.ContainsAny(path, "#|@*?!{}[]()<>=%\"'") {
			return dedupKey{}, fmt.Errorf("dedup key %q: the path names one value, by member names and array indexes joined by dots", s)
		}
		return dedupKey{payload: path}, nil
	}
	return dedupKey{}, fmt.Errorf("dedup key %q: want id, metadata.NAME or payload.PATH", s)
}

func (k dedupKey) of(msg *message.Message) (string, error) {
	var key string
	switch {
	case k.isID:
		if key = msg.UUID; key == "" {
			return "", missing("message has no id: name a key, as metadata.NAME or payload.PATH")
		}
	case k.metadata != "":
		if key = msg.Metadata[k.metadata]; key == "" {
			return "", missing("message has no metadata " + k.metadata)
		}
	default:
		r := gjson.GetBytes(msg.Payload, k.payload)
		if r.IsObject() || r.IsArray() {
			return "", missing("payload." + k.payload + " is not a string, number or boolean")
		}
		if key = r.String(); strings.ContainsRune(key, utf8.RuneError) {
			key = r.Raw // not every text that decodes so is the same
		}
		if key == "" {
			if !gjson.ValidBytes(msg.Payload) {
				return "", &refusal{reason: transport.ReasonUndecodable, text: "key missing: payload is not JSON"}
			}
			return "", missing("payload has no " + k.payload)
		}
	}
	return bounded(key, maxKey), nil
}

// missing is a message without its key.
func missing(text string) error {
	return &refusal{reason: transport.ReasonPermanent, text: "key missing: " + text}
}

// bounded gives s as every database can keep and compare it. The prefix keeps
// hashes apart from keys that look like one.
func bounded(s string, limit int) string {
	if len(s) <= limit && utf8.ValidString(s) && !strings.ContainsRune(s, 0) && !strings.HasPrefix(s, hashed) {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	return hashed + hex.EncodeToString(sum[:])
}

const hashed = "sha256:"
