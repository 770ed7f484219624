package config

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMaskURLKeepsTheError: an @ in the words behind a URL is no end of its login.
func TestMaskURLKeepsTheError(t *testing.T) {
	t.Parallel()
	for _, tc := range [][2]string{
		{
			"database mysql://root@127.0.0.1:21401/leat: Access denied for user 'root'@'127.0.0.1' (using password: YES)",
			"database mysql://***@127.0.0.1:21401/leat: Access denied for user 'root'@'127.0.0.1' (using password: YES)",
		},
		{
			"POST https://bank.example/pay: 422 card declined, tell anna@example.com",
			"POST https://bank.example/pay: 422 card declined, tell anna@example.com",
		},
		{
			`Post "https://bank.example:8443/pay": EOF, tell anna@example.com`,
			`Post "https://bank.example:8443/pay": EOF, tell anna@example.com`,
		},
		{
			"kafka://h1:9092,h2:9092: no leader, tell anna@example.com",
			"kafka://h1:9092,h2:9092: no leader, tell anna@example.com",
		},
		{
			"write amqp://USER@HOST/VHOST",
			"write amqp://USER@HOST/VHOST",
		},
		{
			"write amqp://USER:PASSWORD@HOST:PORT",
			"write amqp://USER:PASSWORD@HOST:PORT",
		},
		{
			"see https://social.example/@anna?mail=anna@example.com",
			"see https://social.example/@anna?mail=anna@example.com",
		},
		{
			"amqp://u:p@h/v: refused, amqps://u:p@h2/v: user 'u'@'h2' refused",
			"amqp://***@h/v: refused, amqps://***@h2/v: user 'u'@'h2' refused",
		},
		{
			`"amqp://u:p@h": x, tell "a"@b`,
			`"amqp://***@h": x, tell "a"@b`,
		},
		{
			"http://[::1]:9610/livez, tell a@b",
			"http://[::1]:9610/livez, tell a@b",
		},
		{
			"(see http://127.0.0.1:9610). Tell a@b",
			"(see http://127.0.0.1:9610). Tell a@b",
		},
		{
			"https://token@git.example/x, tell a@b",
			"https://***@git.example/x, tell a@b",
		},
	} {
		require.Equal(t, tc[1], MaskURL(tc[0]))
	}
}

// oddPasswords hold canary on both sides of what ends a password elsewhere.
func oddPasswords() []string {
	out := []string{"canary", "canary://canary", "canary@canary://canary", "1/canary@2/canary", "canary\\", "1 canary@2 canary", `"canary"`, "canary: x://canary"}
	for _, odd := range []string{"@", "/", " ", "?", "#", "<", ">", ",", ":", `"`, "'", "`", `\`, "%", "%zz", "{", "}", "[", "]", "(", ")", "&", "=", ";", "|", "é", "\t", "$", "://"} {
		out = append(out, "canary"+odd+"canary", odd+"canary", "canary"+odd, odd+"canary"+odd+"canary"+odd, "12"+odd+"canary")
	}
	return out
}

// TestNoPasswordOfAConfiguredURL: whatever is in a password that stands unescaped in a URL, nothing that is printed of the
// URL has it: the component, values and errors about it, the line of the file, and what net/url says.
func TestNoPasswordOfAConfiguredURL(t *testing.T) {
	t.Parallel()
	for _, password := range oddPasswords() {
		shown(t, "canary", "amqp://user:"+password+"@host:5672/vhost")
		shown(t, "canary", "mysql://user:"+password+"@host/db?pool_size=5&mail=anna@example.com")
	}
}

// FuzzNoPassword is the same for passwords that nobody has thought of.
func FuzzNoPassword(f *testing.F) {
	for _, password := range oddPasswords() {
		f.Add(password)
	}
	f.Fuzz(func(t *testing.T, password string) {
		if strings.ContainsAny(password, "\r\n\u0085\u2028\u2029") {
			return // no URL in a line
		}
		password = "12" + password + "canary"
		shown(t, "canary", "amqp://user:"+password+"@host:5672/vhost")
	})
}

// shown prints a URL in every way there is.
func shown(t *testing.T, secret, text string) {
	t.Helper()
	c := Component{Kind: "amqp", URL: NewSecret(text), node: &node{kind: scalarNode, value: text, at: place{src: newSource("x", "", "broker: "+text)}}}
	outputs := []string{
		c.String(), fmt.Sprintf("%#v", c),
		describe(c.node),
		c.Errorf("", "%s is no URL", text).Error(),
		c.Errorf("", "%q is no URL", text).Error(),
		c.Errorf("", "database %v: user 'x'@'y'", text).Error(),
		MaskURL(fmt.Sprintf("dial %q: refused by root@host", text)),
		readableError(fmt.Errorf("dial: %w", &url.Error{Op: "parse", URL: text, Err: errors.New("no")})),
	}
	for _, line := range []string{"broker: " + text, `broker: "` + text + `"`, fmt.Sprintf("broker: %q", text), "brokers: {a: '" + text + "', b: kafka://h}"} {
		snippet, _ := newSource("x", "", line).snippet(1, 1)
		outputs = append(outputs, snippet)
	}
	if _, err := url.Parse(text); err != nil {
		outputs = append(outputs, c.Errorf("", "%v", err).Error(), c.Errorf("", "no: %q", err.Error()).Error())
	}
	for i, out := range outputs {
		require.NotContains(t, out, secret, "%d: %s", i, text)
	}
}

func readableError(err error) string {
	return slog.String("error", MaskURL(err.Error())).String()
}
