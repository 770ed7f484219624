package watermill

import (
	"context"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// login has a client log in, if there is a name to do it with.
func (o *KafkaOptions) login(c *sarama.Config) {
	if o.Username == "" {
		return
	}
	c.Net.SASL.Enable = true
	c.Net.SASL.User, c.Net.SASL.Password = o.Username, o.Password.Reveal()
	auth := scram.Auth{User: o.Username, Pass: o.Password.Reveal()}
	switch o.SASL.Mechanism {
	case "scram-sha-256":
		c.Net.SASL.Mechanism = sarama.SASLTypeSCRAMSHA256
		c.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &scramClient{mechanism: auth.AsSha256Mechanism()} }
	case "scram-sha-512":
		c.Net.SASL.Mechanism = sarama.SASLTypeSCRAMSHA512
		c.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &scramClient{mechanism: auth.AsSha512Mechanism()} }
	default:
		c.Net.SASL.Mechanism = sarama.SASLTypePlaintext
	}
}

// scramClient speaks SCRAM for sarama, which leaves that to others.
type scramClient struct {
	mechanism sasl.Mechanism
	session   sasl.Session
	first     []byte
	done      bool
}

// Begin starts over. The mechanism has the credentials already.
func (s *scramClient) Begin(string, string, string) (err error) {
	s.done = false
	s.session, s.first, err = s.mechanism.Authenticate(context.Background(), "")
	return err
}

// Step answers a challenge; the first one is empty.
func (s *scramClient) Step(challenge string) (string, error) {
	if first := s.first; first != nil {
		s.first = nil
		return string(first), nil
	}
	done, answer, err := s.session.Challenge([]byte(challenge))
	s.done = done
	return string(answer), err
}

// Done tells whether the server has proved itself too.
func (s *scramClient) Done() bool { return s.done }
