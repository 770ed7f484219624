package amqp

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/leat-io/leat/config"
)

// target is what is dialled.
type target struct {
	nodes    []node
	vhost    string
	secure   bool
	username string
	password config.Secret
}

// node is one broker, alone or of a cluster.
type node struct {
	address string // host:port
	host    string
}

// parseURL reads amqp://user:password@host:port,host:port/vhost. Its error
// never shows the URL.
func parseURL(text string) (target, error) {
	var t target
	scheme, rest, _ := strings.Cut(text, "://")
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	start := strings.LastIndex(rest[:end], "@") + 1
	for host := range strings.SplitSeq(rest[start:end], ",") {
		one, err := parseOne(scheme + "://" + rest[:start] + host + rest[end:])
		if err != nil {
			return target{}, err
		}
		one.nodes = append(t.nodes, one.nodes...)
		t = one
	}
	return t, nil
}

// parseOne reads the URL of a single host.
func parseOne(text string) (target, error) {
	u, err := url.Parse(text)
	if err != nil || (u.Scheme != "amqp" && u.Scheme != "amqps") || u.Hostname() == "" {
		return target{}, errors.New("amqp broker: the URL is not one: write amqp://user:password@host:5672/vhost, with special characters percent-encoded (%40 for @), and a comma between the hosts of a cluster")
	}
	if u.RawQuery != "" || u.Fragment != "" {
		return target{}, errors.New("amqp broker: the URL takes nothing after the vhost: the rest goes into broker: {amqp: {…}}")
	}
	t := target{vhost: "/", secure: u.Scheme == "amqps", username: "guest", password: config.NewSecret("guest")}
	port := u.Port()
	switch {
	case port == "" && t.secure:
		port = "5671"
	case port == "":
		port = "5672"
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return target{}, errors.New("amqp broker: the port of the URL is not a number from 1 to 65535")
	}
	t.nodes = []node{{address: net.JoinHostPort(u.Hostname(), port), host: u.Hostname()}}
	if vhost := strings.TrimPrefix(u.Path, "/"); vhost != "" {
		t.vhost = vhost
	}
	if len(t.vhost) > maxShort {
		return target{}, fmt.Errorf("amqp broker: the vhost has %d bytes, at most %d are legal", len(t.vhost), maxShort)
	}
	if u.User != nil {
		t.username = u.User.Username()
		password, _ := u.User.Password()
		t.password = config.NewSecret(password)
	}
	return t, nil
}

// troubles remembers which nodes were in trouble, and when.
type troubles struct {
	mu   sync.Mutex
	last map[node]time.Time
}

// lately is for how long a node that was in trouble is tried after the others.
const lately = 30 * time.Second

func (t *troubles) note(n node) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.last == nil {
		t.last = make(map[node]time.Time)
	}
	t.last[n] = time.Now()
}

// turns is the order in which to try nodes: at random, so that connections
// spread over a cluster; last those that were in trouble lately.
func (t *troubles) turns(nodes []node) []node {
	t.mu.Lock()
	defer t.mu.Unlock()
	since := func(n node) time.Time {
		if at := t.last[n]; time.Since(at) < lately {
			return at
		}
		return time.Time{}
	}
	nodes = slices.Clone(nodes)
	rand.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] }) //nolint:gosec // spreads load
	slices.SortStableFunc(nodes, func(a, b node) int { return since(a).Compare(since(b)) })
	return nodes
}
