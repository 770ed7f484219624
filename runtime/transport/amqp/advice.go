package amqp

import (
	"crypto/tls"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/rabbitmq/amqp091-go"
)

// unrouted says what to do about a message that no queue takes.
func unrouted(exchange, key, reason string) error {
	if exchange == "" {
		return fmt.Errorf("there is no queue %q to take it (%s): make it", key, reason)
	}
	return fmt.Errorf("no queue takes it from exchange %q (%s): start a worker that reads the topic, bind a queue to the exchange, or have such messages dropped: broker: {amqp: {url: …, unrouted: drop}}", exchange, reason)
}

// refusedRight is a broker's word about what a user may not do; the right has
// no name before RabbitMQ 3.11.
var refusedRight = regexp.MustCompile(`^(?:(configure|write|read) )?access to (?:.+ in )?vhost '([^']*)' refused for user '([^']*)'$`)

// adviseOnRights is what to do about a refused right; nothing where it is none.
func adviseOnRights(reason string) string {
	m := refusedRight.FindStringSubmatch(reason)
	if m == nil {
		return ""
	}
	right, vhost, user := m[1], m[2], m[3]
	grant := fmt.Sprintf("rabbitmqctl set_permissions -p '%s' '%s' CONFIGURE WRITE READ, each a pattern of names, '.*' for all", vhost, user)
	switch {
	case strings.HasPrefix(reason, "access to vhost "):
		return ": grant it: " + grant
	case right == "configure":
		return ": grant the right to configure (" + grant + "), or have who may make it: what is there is used as it is, also under the name that topics gives it"
	case right == "":
		return ": grant the right (" + grant + ")"
	default:
		return ": grant the right to " + right + " (" + grant + ")"
	}
}

// adviseOnTLS is what to do about a peer that speaks no TLS.
func adviseOnTLS(err error) string {
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return ": amqps:// wants the broker's port for TLS, mostly 5671; without TLS write amqp://"
	}
	return ""
}

var unknownVhost = regexp.MustCompile(`^vhost .+ not found$`)

// explainLogin is explain for a connection that has not come about: there it is
// known who has asked, and for which vhost.
func (t *Transport) explainLogin(err error) error {
	explained := explain(err)
	e, ok := errors.AsType[*amqp091.Error](err)
	if !ok {
		return explained
	}
	var advice string
	switch reason := trimReason(e.Reason); {
	case strings.HasPrefix(reason, "Login was refused") && t.o.TLS.External:
		advice = "the broker has to have a user of the name in the certificate (ssl_cert_login_from says which name that is): rabbitmqctl add_user"
	case strings.HasPrefix(reason, "Login was refused"):
		advice = fmt.Sprintf("user %q: check the password, which is in the URL, percent-encoded, or in password or password_file beside username", t.target.username)
		if t.target.username == "guest" {
			advice += "; guest, who logs in where nobody is named, is let in from the broker's own machine alone"
		}
	case unknownVhost.MatchString(reason):
		advice = fmt.Sprintf("the path of the URL names it: make it (rabbitmqctl add_vhost '%s') or name one that is there; a URL without a path has the vhost \"/\"", t.target.vhost)
	case !e.Server && (e.Code == amqp091.AccessRefused || e.Code == amqp091.FrameError) && t.target.secure:
		advice = "is that the port of a RabbitMQ, for TLS mostly 5671? It hangs up, too, where it wants another certificate: see tls.cert and tls.key"
	case !e.Server && (e.Code == amqp091.AccessRefused || e.Code == amqp091.FrameError):
		advice = "is that the port of a RabbitMQ, mostly 5672? For 5671, which speaks TLS, write amqps://"
	default:
		return explained
	}
	return fmt.Errorf("%w: %s", explained, advice)
}
