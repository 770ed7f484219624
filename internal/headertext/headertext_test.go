package headertext_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/internal/headertext"
	"github.com/leat-io/leat/runtime/transport"
)

func TestObject(t *testing.T) {
	t.Parallel()
	before := transport.Headers{{Name: "a", Value: "1"}}
	for text, want := range map[string]transport.Headers{
		`{}`:                                     {},
		` {"b": "ü\n", "a": "", "b": "again"} `:  {{Name: "b", Value: "ü\n"}, {Name: "a"}, {Name: "b", Value: "again"}},
		`{"n": 1.50, "t": true, "z": null}`:      {{Name: "n", Value: "1.50"}, {Name: "t", Value: "true"}, {Name: "z"}},
		`{"o": {"x": [1, "y"]}, "": "no name"}`:  {{Name: "o", Value: `{"x": [1, "y"]}`}, {Value: "no name"}},
		`{"e": "\u0000\ud83d\ude42", "f":false}`: {{Name: "e", Value: "\x00🙂"}, {Name: "f", Value: "false"}},
	} {
		got, ok := headertext.Object(before[:1:1], text)
		require.True(t, ok, text)
		require.Equal(t, append(before[:1:1], want...), got, text)
	}
	for _, text := range []string{"", "null", "[]", `"a"`, `{"a"}`, `{"a": 1`, "\x00"} {
		_, ok := headertext.Object(nil, text)
		require.False(t, ok, text)
	}
}

func FuzzPairs(f *testing.F) {
	f.Add("name", "value", "", "\xff\x00")
	f.Add("", "", "", "")
	f.Fuzz(func(t *testing.T, a, b, c, d string) {
		want := transport.Headers{{Name: a, Value: b}, {Name: c, Value: d}}
		text := string(headertext.AppendPairs(nil, want))
		got, ok := headertext.Pairs(nil, text)
		require.True(t, ok)
		require.Equal(t, want, got)
		if got, ok = headertext.Pairs(nil, text[:len(text)-1]); ok {
			t.Fatalf("cut short, it is read as %q", got)
		}
		_, _ = headertext.Pairs(nil, a) // whatever it is
	})
}
