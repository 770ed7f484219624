package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	yaml "go.yaml.in/yaml/v4"
)

func TestDuration(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"250ms": "250ms", "20s": "20s", "1m30s": "1m30s", "168h": "168h", "0s": "0s", "90m": "1h30m", "1h0m5s": "1h0m5s"} {
		d, err := ParseDuration(text)
		require.NoError(t, err)
		require.Equal(t, want, d.String())
	}
	for text, want := range map[string]string{
		"200 ms": `"200 ms" is not a duration; write it like 250ms, 5s or 1m30s`,
		"20":     "not a duration", "0": "not a duration", "": "not a duration", "1 sec": "not a duration", "9999999h": "not a duration",
		"-5s": "negative", "7d": "168h",
	} {
		_, err := ParseDuration(text)
		require.ErrorContains(t, err, want)
	}
}

func TestSize(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Size{"16MiB": 16 << 20, "1KiB": 1024, "10MB": 1e7, "1.5KiB": 1536, "7B": 7, "0B": 0, "2kB": 2000, "2KB": 2000, "1GiB": 1 << 30, "1TiB": 1 << 40} {
		got, err := ParseSize(text)
		require.NoError(t, err)
		require.Equal(t, want, got)
		again, err := ParseSize(got.String())
		require.NoError(t, err)
		require.Equal(t, got, again)
	}
	for _, text := range []string{"16", "", "B", "MiB", "16 MiB", "-1MiB", "1e3B", "16mib", "16M", "99999999TiB", "1.2.3B", "."} {
		_, err := ParseSize(text)
		require.ErrorContains(t, err, "is not a size; write it like 512KiB, 16MiB or 1GiB", text)
	}
}

func TestTextRoundTrip(t *testing.T) {
	t.Parallel()
	in := struct {
		D Duration
		S Size
	}{Duration(time.Minute), 16 << 20}
	data, err := json.Marshal(in)
	require.NoError(t, err)
	require.JSONEq(t, `{"D":"1m","S":"16MiB"}`, string(data))
	out := in
	out.D, out.S = 0, 0
	require.NoError(t, json.Unmarshal(data, &out))
	require.Equal(t, in, out)
	require.Error(t, json.Unmarshal([]byte(`{"D":"1"}`), &out))
	require.Error(t, json.Unmarshal([]byte(`{"S":"1"}`), &out))
}

// TestNothingPrintsASecret sends values that hold one through every way of printing.
func TestNothingPrintsASecret(t *testing.T) {
	t.Parallel()
	c := load(t, `
broker: amqp://user:canary@host:5672/vhost?password=canary
brokers:
  k: {kafka: {brokers: [h], password: canary, username: canary}}
store: {sql: {token: "${CANARY}"}}
consumers: {c: {topic: t, handler: log}}
`)
	options := testKafka{}
	require.NoError(t, c.Brokers["k"].Decode(&options))
	require.Equal(t, "canary", options.Password.Reveal())
	options.Username = ""
	hidden := struct{ inner Secret }{NewSecret("canary")}
	values := []any{NewSecret("canary"), options, &options, hidden, &hidden, *c, c, c.Broker, c.Brokers, c.Store, []Secret{NewSecret("canary")}, map[string]Secret{"a": NewSecret("canary")}}
	for _, v := range values {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t", "%p", "%T", "%10.3s", "%c", "%U", "%e"} {
			out := fmt.Sprintf(verb, v)
			require.NotContains(t, out, "canary", verb)
			require.NotContains(t, strings.ToLower(out), "63616e617279", verb)
		}
		var log bytes.Buffer
		slog.New(slog.NewTextHandler(&log, nil)).Info("x", "v", v)
		slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "v", v)
		require.NotContains(t, log.String(), "canary")
		asJSON, err := json.Marshal(v)
		require.NoError(t, err)
		require.NotContains(t, string(asJSON), "canary")
	}
	for _, v := range []any{NewSecret("canary"), options} {
		asYAML, err := yaml.Marshal(v)
		require.NoError(t, err)
		require.NotContains(t, string(asYAML), "canary")
	}
	require.True(t, Secret{}.IsZero())
	require.Equal(t, "***", Secret{}.String())
}

func TestMaskURL(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"amqp://guest:guest@h:5672/v":                  "amqp://***@h:5672/v",
		"amqp://u:p@ss/w#rd@h/v":                       "amqp://***@h/v",
		"postgres://u:p w@h/db?sslmode=off&password=x": "postgres://***@h/db?sslmode=off&password=***",
		"kafka://h1:9092,h2:9092":                      "kafka://h1:9092,h2:9092",
		`dial "amqp://u:p@h": refused`:                 `dial "amqp://***@h": refused`,
		"amqp://a:b@c and kafka://d:e@f":               "amqp://***@c and kafka://***@f",
		"root:pw@tcp(h:3306)/db":                       "***@tcp(h:3306)/db",
		"host=h password=x user=u":                     "host=h password=*** user=u",
		"see worker.yaml:6:5: nothing here":            "see worker.yaml:6:5: nothing here",
		"line one amqp://u:p@h\nmail a@b":              "line one amqp://***@h\nmail a@b",
		"":                                             "",
	} {
		require.Equal(t, want, MaskURL(in))
	}
}

// TestSourceLinesHideSecrets shows each line of texts with a secret in every shape YAML has.
func TestSourceLinesHideSecrets(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"password: canary", "password:   'canary'", `"password": "canary"`, `{a: 1, password: canary, b: 2}`, `{"password":"canary"}`,
		"password: |\n  canary\n\n  canary\nnext: 1", "password:\n  canary", "password: >-\n    canary", "- password: canary", "- a: 1\n  password: canary",
		"? password\n: canary", "password: \"abc\ncanary\ncanary\" # x", "db_password: canary", "accessToken: canary", "passwrd: canary", "url: amqp://u:canary@h",
		"url: \"amqp://u:can\\\"ary canary@h\"", "password: canary # comment canary", "password: ${X:-canary}", "secrets:\n  a: canary\n  b: [canary]", "password: \"a\\\"canary\"",
		"dsn: root:canary@tcp(h)/x", "api_key: canary", "PASSWORD: canary", "password : canary",
	} {
		src := newSource("x", "", text)
		for i := range src.lines {
			line, _ := src.snippet(i+1, 1)
			require.NotContains(t, line, "canary", text)
		}
	}
	src := newSource("x", "", "consumers:\n  # c\n  password-reset:\n    topic: visible\n    token: canary\n")
	line, _ := src.snippet(4, 1)
	require.Equal(t, "    topic: visible", line)
	line, _ = src.snippet(5, 1)
	require.Equal(t, "    token: ***", line)
	line, caret := newSource("x", "", "{password: longer-than-mask, colour: 1}").snippet(1, 30)
	require.Equal(t, "{password: ***, colour: 1}", line)
	require.Equal(t, "colour", line[caret:caret+6])
	line, _ = newSource("x", "", "password: ${file:/run/secrets/db}").snippet(1, 1)
	require.Equal(t, "password: ${file:/run/secrets/db}", line)
}

func TestQuotedReferencesAreNumbersToo(t *testing.T) {
	t.Parallel()
	c := load(t, "broker: x\nconsumers: {c: {topic: t, handler: h, concurrency: \"${PORT}\"}}\n")
	require.Equal(t, 8080, c.Consumers[0].Concurrency)
}
