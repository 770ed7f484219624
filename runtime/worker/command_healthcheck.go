package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/leat-io/leat/config"
)

type healthcheckCommand struct {
	fileFlags

	URL      string        `name:"url" placeholder:"URL" help:"Where the worker listens, such as http://127.0.0.1:9610. Default: what the file says."`
	Ready    bool          `help:"Ask whether it is ready, not whether it is alive."`
	Instance string        `env:"LEAT_INSTANCE" placeholder:"NAME" help:"Instance that has to answer."`
	Timeout  time.Duration `default:"3s" help:"How long it may take."`
}

// answer is what stands at one address.
type answer struct {
	url, name, instance string
	code                int
	body                string
	err                 error
}

// Run asks the worker of this configuration, for images that have no curl. A
// worker whose file names no address is looked for on all the default ports.
func (c *healthcheckCommand) Run(ctx context.Context, p *process) error {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	urls, name := []string{strings.TrimSuffix(c.URL, "/")}, ""
	if c.URL == "" {
		o, err := gather(p.with(c.option()))
		if err != nil {
			return err
		}
		cfg, err := config.Load(o.config)
		if err != nil {
			return err
		}
		name = cfg.Name
		if urls, err = addresses(cfg.HTTP.Listen); err != nil {
			return err
		}
	}
	ours, err := c.find(ctx, urls, name)
	if err != nil {
		return err
	}
	if ours.code != http.StatusOK {
		return fmt.Errorf("%s, instance %s: %s", ours.url, ours.instance, ours.body)
	}
	_, err = fmt.Fprintln(p.out, ours.body)
	return err
}

// addresses is where a worker with that http.listen may be.
func addresses(listen string) ([]string, error) {
	switch listen {
	case config.Off:
		return nil, errors.New("http.listen is off: there is nothing to ask")
	case "":
		urls := nearby(config.DefaultListen)
		for i := range urls {
			urls[i] = "http://" + urls[i]
		}
		return urls, nil
	}
	host, port, err := net.SplitHostPort(listen)
	switch ip := net.ParseIP(host); {
	case err != nil:
		return nil, fmt.Errorf("http.listen: %w", err)
	case port == "0":
		return nil, errors.New("http.listen has port 0, which is another one each time: use --url")
	case host == "", ip.IsUnspecified() && ip.To4() != nil:
		host = "127.0.0.1"
	case ip.IsUnspecified():
		host = "::1"
	}
	return []string{"http://" + net.JoinHostPort(host, port)}, nil
}

// find asks all addresses and picks the worker that is meant.
func (c *healthcheckCommand) find(ctx context.Context, urls []string, name string) (answer, error) {
	answers := make(chan answer, len(urls))
	for _, url := range urls {
		go func() { answers <- c.ask(ctx, url) }()
	}
	var ours, others []answer
	var unreached error
	for range urls {
		a := <-answers
		switch {
		case a.err != nil:
			unreached = a.err
		case a.instance == "", name != "" && a.name != name, c.Instance != "" && a.instance != c.Instance:
			others = append(others, a)
		default:
			ours = append(ours, a)
		}
	}
	switch {
	case len(ours) == 1:
		return ours[0], nil
	case len(ours) > 1:
		return answer{}, fmt.Errorf("%d workers called %q answer on this machine: give each an instance, or an http.listen of its own", len(ours), name)
	case len(others) > 0:
		a := others[0]
		if a.instance == "" {
			return answer{}, fmt.Errorf("%s is no worker", a.url)
		}
		return answer{}, fmt.Errorf("%s is another worker: %q, instance %s", a.url, a.name, a.instance)
	case len(urls) > 1:
		return answer{}, fmt.Errorf("no worker answers on %s or the %d ports after it", urls[0], len(urls)-1)
	}
	return answer{}, unreached
}

// ask makes one request, straight to the address and to no other.
func (c *healthcheckCommand) ask(ctx context.Context, url string) answer {
	a := answer{url: url}
	path := "/livez"
	if c.Ready {
		path = "/readyz"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+path, nil)
	if err != nil {
		a.err = err
		return a
	}
	direct := &http.Transport{DisableKeepAlives: true}
	client := http.Client{Transport: direct, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	res, err := client.Do(req)
	if err != nil {
		a.err = err
		return a
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, 4<<10))
	a.err = errors.Join(err, res.Body.Close())
	a.code, a.body = res.StatusCode, strings.TrimSpace(string(body))
	a.name, a.instance = res.Header.Get(nameHeader), res.Header.Get(instanceHeader)
	return a
}
