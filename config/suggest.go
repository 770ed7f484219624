package config

import (
	"errors"
	"fmt"
	"strings"

	"github.com/agnivade/levenshtein"
)

// longestName bounds the work on keys that are no slip of the pen.
const longestName = 64

// plainName takes away what people vary in a name: case, dashes and underscores.
func plainName(name string) string {
	return strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(name))
}

// near says whether a is b with a letter or two wrong: one per four letters of b.
func near(a, b string) bool {
	if len(a) > longestName {
		return false
	}
	return levenshtein.ComputeDistance(a, b) <= len(b)/4
}

// calledHere is what a kind is called here that others call by another name, else the kind itself.
func calledHere(kind string) string {
	switch plain := plainName(kind); plain {
	case "rabbitmq", "rabbit":
		return "amqp"
	case "rabbitmqs":
		return "amqps"
	case "mariadb":
		return "mysql"
	case "postgresql", "pgsql", "psql", "pgx", "pg":
		return "postgres"
	case "sqlite3":
		return "sqlite"
	case "redpanda":
		return "kafka"
	case "gochannel", "inmemory":
		return "memory"
	}
	return kind
}

// NoTransport is the error about a kind of transport that is not known.
func (k Known) NoTransport(kind string) error {
	return errors.New(unknownKind("transport", kind, k.Transports))
}

// unknownKind says that there is no such kind of something, and which was meant.
func unknownKind(what, kind string, known []string) string {
	word := kind
	if what == "transport" || what == "store" {
		word = calledHere(word)
	}
	return fmt.Sprintf("there is no %s %q%s", what, clip(kind), suggestion(word, known))
}

// suggestion finishes a message about an unknown word: the nearest of the known ones, else all of them.
func suggestion(word string, known []string) string {
	if len(known) == 0 {
		return "; there is none here"
	}
	if best := nearest(word, known); best != "" {
		return fmt.Sprintf("; did you mean %q?", best)
	}
	return "; there is: " + strings.Join(known, ", ")
}

// nearest is the known word closest to word, or "" where none is close.
func nearest(word string, known []string) string {
	best, least := "", 0
	plain := plainName(word)
	if len(plain) > longestName {
		return ""
	}
	for _, k := range known {
		d := levenshtein.ComputeDistance(plain, plainName(k))
		if d <= max(1, (len(k)+1)/3) && d < len(k) && (best == "" || d < least) {
			best, least = k, d
		}
	}
	return best
}
