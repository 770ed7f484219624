package config

import (
	"fmt"
	"io"
	"log/slog"
)

// Secret is a text that prints as *** by every way of printing: fmt, log/slog, JSON, YAML, text.
// Only [Secret.Reveal] gives it away. The zero Secret is the empty text.
type Secret struct {
	text *string // behind a pointer, so that not even fmt on a struct's unexported field shows it
}

// NewSecret makes a secret of a text.
func NewSecret(text string) Secret { return Secret{text: &text} }

// Reveal returns the text itself.
func (s Secret) Reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

// IsZero says whether the text is empty.
func (s Secret) IsZero() bool { return s.Reveal() == "" }

// String returns ***.
func (s Secret) String() string { return masked }

// GoString returns ***.
func (s Secret) GoString() string { return masked }

// Format writes *** for every verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, masked) }

// MarshalText returns ***.
func (s Secret) MarshalText() ([]byte, error) { return []byte(masked), nil }

// MarshalJSON returns "***".
func (s Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + masked + `"`), nil }

// MarshalYAML returns ***.
func (s Secret) MarshalYAML() (any, error) { return masked, nil }

// LogValue returns ***.
func (s Secret) LogValue() slog.Value { return slog.StringValue(masked) }
