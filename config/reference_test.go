package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReferences(t *testing.T) {
	t.Parallel()
	env := map[string]string{"A": "alpha", "EMPTY": "", "REF": "${A}", "NULL": "null", "MULTI": "x\nadmin: {listen: 0.0.0.0}"}
	files := map[string]string{"/f": "secret\n", "/two": "a\n\n", "/crlf": "a\r\n", "/big": strings.Repeat("x", maxFile+1), "base/rel": "relative"}
	e := expander{
		lookup: func(name string) (string, bool) { v, ok := env[name]; return v, ok },
		readFile: func(path string) ([]byte, error) {
			text, ok := files[path]
			if !ok {
				return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
			}
			return []byte(text), nil
		},
	}
	for _, tc := range []struct{ in, want, err string }{
		{in: "plain", want: "plain"},
		{in: "${A}", want: "alpha"},
		{in: "<${A}-${A}>", want: "<alpha-alpha>"},
		{in: "${EMPTY}", want: ""},
		{in: "${UNSET}", err: "environment variable UNSET is not set; set it, or give a default: ${UNSET:-default}"},
		{in: "${UNSET:-d}", want: "d"},
		{in: "${UNSET:-}", want: ""},
		{in: "${EMPTY:-d}", want: "d"},
		{in: "${A:-d}", want: "alpha"},
		{in: "${UNSET:-a:?b}", want: "a:?b"},
		{in: "${UNSET:-kafka://h:9092}", want: "kafka://h:9092"},
		{in: "${UNSET:?set it: now}", err: "environment variable UNSET: set it: now"},
		{in: "${UNSET:?use x:-y}", err: "environment variable UNSET: use x:-y"},
		{in: "${EMPTY:?}", err: "environment variable EMPTY is not set or empty; set it"},
		{in: "${A:?m}", want: "alpha"},
		{in: "${file:/f}", want: "secret"},
		{in: "${file:/two}", want: "a\n"},
		{in: "${file:/crlf}", want: "a"},
		{in: "${file:rel}", want: "relative"},
		{in: "${file:/none}", err: "/none: file does not exist"},
		{in: "${file:/big}", err: "/big: larger than 1 MiB"},
		{in: "${file:}", err: "a file reference without a path"},
		{in: "pa$$word", want: "pa$$word"},
		{in: "$", want: "$"},
		{in: "$A", want: "$A"},
		{in: "a$", want: "a$"},
		{in: "$${X}", want: "${X}"},
		{in: "$${A}${A}", want: "${A}alpha"},
		{in: "$$${A}", want: "$${A}"},
		{in: "${REF}", want: "${A}"},
		{in: "${MULTI}", want: "x\nadmin: {listen: 0.0.0.0}"},
		{in: "${A", err: "a ${ without its }"},
		{in: "${}", err: "not a reference"},
		{in: "${A B}", err: "not a reference"},
		{in: "${A-d}", err: "not a reference"},
		{in: "${1}", err: "not a reference"},
		{in: "${A:-${B}}", err: "a reference inside a reference"},
	} {
		t.Run(tc.in, func(t *testing.T) {
			t.Parallel()
			got, _, err := e.expand(tc.in, "base")
			if tc.err != "" {
				require.ErrorContains(t, err, tc.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.want, got)
		})
	}
}

const five = `
name: payments
broker: sqlite://worker.db
consumers:
  charge:
    topic: orders.placed
    handler: charge
`

func TestReferencedScalarsAreTyped(t *testing.T) {
	t.Parallel()
	c := load(t, five+"    concurrency: ${PORT}\n    timeout: ${T:-3s}\n    group: ${PORT}\n")
	require.Equal(t, 8080, c.Consumers[0].Concurrency)
	require.Equal(t, "3s", c.Consumers[0].Timeout.String())
	require.Equal(t, "8080", c.Consumers[0].Group)
}

func TestReferenceNeverChangesStructure(t *testing.T) {
	t.Parallel()
	c := load(t, five+"    use:\n      - tenant:\n          note: ${MULTI}\n          nothing: ${NULL:-null}\n          list: ${LIST:-[a, b]}\n")
	var got map[string]any
	options := struct {
		Note    any `yaml:"note"`
		Nothing any `yaml:"nothing"`
		List    any `yaml:"list"`
	}{}
	require.NoError(t, c.Consumers[0].Use[0].Decode(&options))
	require.Empty(t, got)
	require.Equal(t, "x\nadmin: {listen: 0.0.0.0}", options.Note)
	require.Equal(t, "null", options.Nothing)
	require.Equal(t, "[a, b]", options.List)
	require.Empty(t, c.HTTP.Listen)
}

func TestFileReferenceIsRelativeToTheFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "url"), []byte("amqp://u:p@h\n"), 0o600))
	file := filepath.Join(dir, "w.yaml")
	require.NoError(t, os.WriteFile(file, []byte(strings.Replace(five, "sqlite://worker.db", "${file:url}", 1)), 0o600))
	c, err := Load(Options{Files: []string{file}})
	require.NoError(t, err)
	require.Equal(t, "amqp://u:p@h", c.Broker.URL.Reveal())
	require.Equal(t, "amqp://***@h", c.Broker.String())
	require.Equal(t, dir, c.Broker.Dir)
}

func TestUnreadableFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	big := filepath.Join(dir, "big.yaml")
	require.NoError(t, os.WriteFile(big, nil, 0o600))
	require.NoError(t, os.Truncate(big, 50<<20))
	for file, want := range map[string]string{
		filepath.Join(dir, "none.yaml"): "none.yaml: no such file; name another with -c",
		dir:                             ": a folder or device, not a file",
		"/dev/zero":                     "/dev/zero: a folder or device, not a file",
		big:                             "big.yaml: larger than 1 MiB",
	} {
		_, err := Load(Options{Files: []string{file}})
		require.ErrorContains(t, err, want)
	}
	_, err := Load(Options{Data: []Data{{Name: "stdin", Text: make([]byte, maxFile+1)}}})
	require.ErrorContains(t, err, "stdin: larger than 1 MiB")
	_, err = Load(Options{})
	require.ErrorContains(t, err, "worker.yaml: no such file")
	_, err = try(five+"    group: ${file:x}\n", func(o *Options) {
		o.ReadFile = func(string) ([]byte, error) { return nil, errors.New("permission denied") }
	})
	require.ErrorContains(t, err, "x: permission denied")
}
