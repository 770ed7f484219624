package kafka_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/leat-io/leat/runtime/transport/kafka"
)

// testWrong runs the worker where the broker does not let it in, or not to
// everything. It says what, where and how to mend it, and never the password;
// it ends if that will not change by itself, and else tries again.
func (s *secure) testWrong(t *testing.T) {
	t.Helper()
	other := newAuthority(t)
	strange := s.client(other, "client").TLS
	mine := s.client(s.ca, "client").TLS
	trusting := fmt.Sprintf("tls: {ca: %q}", s.ca.file("ca.pem"))
	showing := func(t *kafka.TLS) string { return fmt.Sprintf("tls: {ca: %q, cert: %q, key: %q}", t.CA, t.Cert, t.Key) }
	login := func(mechanism string) string {
		return trusting + ", sasl: {mechanism: " + mechanism + "}, username: {user}, password: not-to-be-told"
	}
	bearer := func(token string) string {
		return trusting + fmt.Sprintf(", sasl: {mechanism: oauthbearer, token: %q}", token)
	}
	consume, kept := []kadm.ACLOperation{kadm.OpRead, kadm.OpDescribe}, []kadm.ACLOperation{kadm.OpWrite, kadm.OpDescribe, kadm.OpCreate}
	for name, tc := range map[string]struct {
		at      string
		options string                     // {user} is the user's name
		may     func(t *testing.T, u user) // gives it rights
		ends    bool
		says    []string // {addr} is where it connects, {topic}, {group} and {dead} are what it uses
	}{
		"TLS to plain":         {at: s.plain, options: trusting, says: []string{"{addr}", "is TLS misconfigured", "see tls and sasl"}},
		"plain to TLS":         {at: s.tls, says: []string{"{addr}", "the port is one for TLS: add tls: {}"}},
		"unknown authority":    {at: s.sasl, options: "tls: {}", ends: true, says: []string{"{addr}", "unknown authority", "tls.ca"}},
		"other authority":      {at: s.sasl, options: fmt.Sprintf("tls: {ca: %q}", other.file("ca.pem")), ends: true, says: []string{"{addr}", "unknown authority", "tls.ca"}},
		"other host":           {at: s.sasl, options: fmt.Sprintf("tls: {ca: %q, server_name: kafka.example}", s.ca.file("ca.pem")), ends: true, says: []string{"{addr}", "kafka.example", "tls.server_name"}},
		"no certificate":       {at: s.tls, options: trusting, ends: true, says: []string{"{addr}", "certificate of this client", "see tls.cert and tls.key"}},
		"strange certificate":  {at: s.tls, options: showing(strange), ends: true, says: []string{"{addr}", "certificate of this client", "see tls.cert and tls.key"}},
		"no login":             {at: s.sasl, options: trusting, says: []string{"{addr}", "is SASL missing?"}},
		"needless login":       {at: s.tls, options: strings.Replace(login("plain"), trusting, showing(mine), 1), ends: true, says: []string{"{addr}", "ILLEGAL_SASL_STATE", "wants no login at this port"}},
		"password, plain":      {at: s.sasl, options: login("plain"), ends: true, says: []string{"{addr}", "SASL_AUTHENTICATION_FAILED", "see username and password"}},
		"password, scram":      {at: s.sasl, options: login("scram-sha-256"), may: func(t *testing.T, u user) { t.Helper(); s.password(t, u, "another") }, ends: true, says: []string{"{addr}", "SASL_AUTHENTICATION_FAILED", "SCRAM-SHA-256", "see username and password"}},
		"unknown user":         {at: s.sasl, options: login("scram-sha-512"), ends: true, says: []string{"{addr}", "SASL_AUTHENTICATION_FAILED", "SCRAM-SHA-512"}},
		"token that has ended": {at: s.sasl, options: bearer(token("not-to-be-told", time.Now().Add(-time.Hour))), ends: true, says: []string{"{addr}", "SASL_AUTHENTICATION_FAILED", "sasl.token"}},
		"no token":             {at: s.sasl, options: bearer("not-to-be-told"), ends: true, says: []string{"{addr}", "SASL_AUTHENTICATION_FAILED", "sasl.token"}},
		"no right: topic": {at: s.sasl, options: login("scram-sha-256"), ends: true, says: []string{`topic "{topic}"`, "TOPIC_AUTHORIZATION_FAILED", "needs Read and Describe"}, may: func(t *testing.T, u user) {
			t.Helper()
			s.password(t, u, "not-to-be-told")
			s.allow(t, u.name, nil, []string{u.group}, kadm.OpRead)
			s.allow(t, u.name, []string{u.dead()}, nil, kept...)
		}},
		"no right: to read": {at: s.sasl, options: login("scram-sha-256"), ends: true, says: []string{`topic "{topic}"`, "TOPIC_AUTHORIZATION_FAILED", "needs Read and Describe"}, may: func(t *testing.T, u user) {
			t.Helper()
			s.password(t, u, "not-to-be-told")
			s.allow(t, u.name, []string{u.topic}, nil, kadm.OpDescribe)
			s.allow(t, u.name, nil, []string{u.group}, kadm.OpRead)
			s.allow(t, u.name, []string{u.dead()}, nil, kept...)
		}},
		"no right: group": {at: s.sasl, options: login("scram-sha-256"), ends: true, says: []string{`group "{group}"`, "GROUP_AUTHORIZATION_FAILED", "needs Read on the group"}, may: func(t *testing.T, u user) {
			t.Helper()
			s.password(t, u, "not-to-be-told")
			s.allow(t, u.name, []string{u.topic}, nil, consume...)
			s.allow(t, u.name, []string{u.dead()}, nil, kept...)
		}},
		"no right: to create": {at: s.sasl, options: login("scram-sha-256"), ends: true, says: []string{`topic "{dead}"`, "create: TOPIC_AUTHORIZATION_FAILED", "Create to make them"}, may: func(t *testing.T, u user) {
			t.Helper()
			s.password(t, u, "not-to-be-told")
			s.mayConsume(t, u.name, u)
			s.allow(t, u.name, []string{u.dead()}, nil, kadm.OpWrite, kadm.OpDescribe)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := newUser()
			s.create(t, u.topic)
			if tc.may != nil {
				tc.may(t, u)
			}
			names := strings.NewReplacer("{addr}", tc.at, "{user}", u.name, "{topic}", u.topic, "{group}", u.group, "{dead}", u.dead())
			p := newSite(t, fmt.Sprintf("{brokers: [%q], session_timeout: 3s, %s}", tc.at, names.Replace(tc.options)), u.topic, u.group).start("one")
			for _, text := range tc.says {
				p.tells(names.Replace(text))
			}
			if tc.ends {
				require.Equal(t, 1, p.exit(), "%s", &p.out)
			} else {
				p.tells("next_try")
				p.stop()
			}
			require.NotContains(t, p.out.String(), "not-to-be-told")
			require.NotContains(t, p.out.String(), "router ready")
		})
	}
}
