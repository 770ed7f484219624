package builtin

import (
	"net/url"
	"strings"

	"github.com/leat-io/leat/config"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/watermill"
	"github.com/leat-io/leat/runtime/worker"
)

// openWatermillKafka reads watermill-kafka://h1:9092,h2:9092, or
// {watermill-kafka: {brokers: […]}}.
func openWatermillKafka(_ worker.Env, c config.Component) (transport.Transport, error) {
	var o watermill.KafkaOptions
	if err := c.Decode(&o); err != nil {
		return nil, err
	}
	if _, rest, ok := strings.Cut(c.URL.Reveal(), "://"); ok {
		hosts, _, _ := strings.Cut(rest, "/")
		if login, after, found := cutLast(hosts, "@"); found {
			name, password, _ := strings.Cut(login, ":")
			name, err := url.PathUnescape(name)
			if err != nil {
				return nil, c.Errorf("", "the user name in the URL is not escaped")
			}
			if password, err = url.PathUnescape(password); err != nil {
				return nil, c.Errorf("", "the password in the URL is not escaped")
			}
			o.Username, o.Password, hosts = name, config.NewSecret(password), after
		}
		o.Brokers = strings.FieldsFunc(hosts, func(r rune) bool { return r == ',' })
	}
	return watermill.Kafka(o)
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return "", s, false
}

// openWatermillAMQP reads watermill-amqp://user:password@host:5672/vhost, or
// {watermill-amqp: {url: amqp://…}}.
func openWatermillAMQP(_ worker.Env, c config.Component) (transport.Transport, error) {
	o := watermill.AMQPOptions{URL: plainURL(c, "amqp")}
	if err := c.Decode(&o); err != nil {
		return nil, err
	}
	return watermill.AMQP(o)
}

// openWatermillPostgres reads watermill-postgres://user:password@host/database,
// or {watermill-postgres: {url: postgres://…}}.
func openWatermillPostgres(_ worker.Env, c config.Component) (transport.Transport, error) {
	o := watermill.SQLOptions{URL: plainURL(c, "postgres")}
	if err := c.Decode(&o); err != nil {
		return nil, err
	}
	return watermill.Postgres(o)
}

// openWatermillMySQL reads watermill-mysql://user:password@host/database, or
// {watermill-mysql: {url: mysql://…}}.
func openWatermillMySQL(_ worker.Env, c config.Component) (transport.Transport, error) {
	o := watermill.SQLOptions{URL: plainURL(c, "mysql")}
	if err := c.Decode(&o); err != nil {
		return nil, err
	}
	return watermill.MySQL(o)
}

// plainURL is the component's URL with the scheme of the broker itself.
func plainURL(c config.Component, scheme string) config.Secret {
	if _, rest, ok := strings.Cut(c.URL.Reveal(), "://"); ok {
		return config.NewSecret(scheme + "://" + rest)
	}
	return config.Secret{}
}
