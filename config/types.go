package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Duration is a time span that is written with its unit: 250ms, 20s, 1m30s, 168h. It is never negative.
type Duration time.Duration

// ParseDuration reads a duration. A number without a unit, a negative one, and days (7d; write 168h) are errors.
func ParseDuration(text string) (Duration, error) {
	d, err := time.ParseDuration(text)
	switch {
	case err != nil && strings.HasSuffix(text, "d"):
		return 0, fmt.Errorf("%q is not a duration; days are written in hours, 7 days as 168h", text)
	case err != nil || !strings.ContainsAny(text, "smh"):
		return 0, fmt.Errorf("%q is not a duration; write it like 250ms, 5s or 1m30s", text)
	case d < 0:
		return 0, fmt.Errorf("%q is a negative duration; write it like 250ms, 5s or 1m30s", text)
	}
	return Duration(d), nil
}

// Std returns the duration as the standard library's.
func (d Duration) Std() time.Duration { return time.Duration(d) }

// String is the short form: 168h, not 168h0m0s.
func (d Duration) String() string {
	text := time.Duration(d).String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// MarshalText returns what String does.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads what [ParseDuration] reads.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := ParseDuration(string(text))
	if err == nil {
		*d = parsed
	}
	return err
}

// Size is a number of bytes that is written with its unit: 512B, 64KiB, 16MiB, 1GiB, or decimal kB, MB, GB.
type Size int64

var sizeUnits = []struct {
	name  string
	bytes int64
}{
	{"TiB", 1 << 40},
	{"GiB", 1 << 30},
	{"MiB", 1 << 20},
	{"KiB", 1 << 10},
	{"TB", 1e12},
	{"GB", 1e9},
	{"MB", 1e6},
	{"kB", 1e3},
	{"KB", 1e3},
	{"B", 1},
}

// ParseSize reads a size. A number without a unit is an error.
func ParseSize(text string) (Size, error) {
	for _, unit := range sizeUnits {
		digits, ok := strings.CutSuffix(text, unit.name)
		if !ok {
			continue
		}
		if strings.Trim(digits, "0123456789.") != "" {
			break
		}
		n, err := strconv.ParseFloat(digits, 64)
		if err != nil || n*float64(unit.bytes) >= math.MaxInt64 {
			break
		}
		return Size(n * float64(unit.bytes)), nil
	}
	return 0, fmt.Errorf("%q is not a size; write it like 512KiB, 16MiB or 1GiB", text)
}

// String writes the size with the largest unit that needs no fraction.
func (s Size) String() string {
	for _, unit := range sizeUnits {
		if s != 0 && int64(s)%unit.bytes == 0 {
			return strconv.FormatInt(int64(s)/unit.bytes, 10) + unit.name
		}
	}
	return "0B"
}

// MarshalText returns what String does.
func (s Size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what [ParseSize] reads.
func (s *Size) UnmarshalText(text []byte) error {
	parsed, err := ParseSize(string(text))
	if err == nil {
		*s = parsed
	}
	return err
}
