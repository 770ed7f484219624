package worker_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/handlers"
	"github.com/leat-io/leat/runtime/transport/memory"
	"github.com/leat-io/leat/runtime/worker"
	"github.com/leat-io/leat/runtime/worker/builtin"
)

func newLog(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }

// get asks a handler, as Host localhost.
func get(h http.Handler, target string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, target, nil)
	r.Host = "localhost:9610"
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r)
	return rec
}

const memoryYAML = "name: test\nbroker: memory://x\nconsumers: {c: {topic: in, handler: work, retry: {attempts: 1}}}\n"

// TestReadyIsLatched: from the first complete start to the drain, whatever the
// broker does meanwhile.
func TestReadyIsLatched(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		w, err := worker.New(builtin.All(), yaml(memoryYAML), worker.Handle("work", func(*message.Message) ([]*message.Message, error) {
			<-release
			return nil, nil
		}))
		require.NoError(t, err)
		h, broker := w.Handler(), w.Transport("").(*memory.Transport).Broker()
		expect := func(code int, state string) {
			t.Helper()
			synctest.Wait()
			rec := get(h, "/readyz")
			require.Equal(t, []any{code, state + "\n"}, []any{rec.Code, rec.Body.String()})
			require.Equal(t, http.StatusOK, get(h, "/livez").Code)
		}
		expect(http.StatusServiceUnavailable, "starting")

		outage := errors.New("amqp://user:canary@host: no route")
		heal := broker.Inject(memory.Fault{Op: memory.OpOpenConsumer, Err: outage})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.Run(ctx) }()
		time.Sleep(time.Minute)
		expect(http.StatusServiceUnavailable, "starting")
		verbose := get(h, "/readyz?verbose")
		require.Equal(t, http.StatusServiceUnavailable, verbose.Code)
		require.JSONEq(t, `{"state": "starting", "consumers": [
			{"consumer": "c", "state": "reconnecting", "why": "subscribe: join group \"test.c\" of topic \"in\": amqp://***@host: no route"}]}`, verbose.Body.String())
		heal()
		time.Sleep(time.Minute)
		expect(http.StatusOK, "ready")

		heal = broker.Inject(memory.Fault{Op: memory.OpReceive, Err: outage})
		time.Sleep(time.Minute)
		expect(http.StatusOK, "ready")
		require.Contains(t, get(h, "/readyz?verbose").Body.String(), "reconnecting")
		heal()
		time.Sleep(time.Minute)

		publish(t, w, message.NewMessage("1", nil))
		synctest.Wait()
		stop()
		expect(http.StatusServiceUnavailable, "draining")
		close(release)
		require.NoError(t, <-ended)
		expect(http.StatusServiceUnavailable, "draining")
		require.Contains(t, get(h, "/metrics").Body.String(), `leat_outcomes_total{consumer="c",outcome="handled"} 1`, "also at the end")
	})
}

func TestStatusz(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, err := worker.New(builtin.All(), yaml(memoryYAML), worker.Instance("one"), worker.Handle("work", func(m *message.Message) ([]*message.Message, error) {
			return nil, handlers.Permanent(errors.New("canary " + string(m.Payload)))
		}))
		require.NoError(t, err)
		publish(t, w, message.NewMessage("1", []byte("canary")))
		runUntilIdle(t, w)
		rec := get(w.Handler(), "/statusz")
		require.Equal(t, http.StatusOK, rec.Code)
		require.Equal(t, "application/json", rec.Header().Get("Content-Type"))
		var got map[string]any
		require.NoError(t, json.Unmarshal(rec.Body.Bytes(), &got))
		require.Equal(t, []any{"test", "one", "draining"}, []any{got["name"], got["instance"], got["state"]})
		require.NotEmpty(t, got["version"])
		require.Greater(t, got["uptime_seconds"], 59.0)
		c := got["consumers"].([]any)[0].(map[string]any)
		require.Equal(t, []any{"c", "stopped", 0.0}, []any{c["consumer"], c["state"], c["oldest_in_flight_seconds"]})
		require.InDelta(t, 1, c["outcomes"].(map[string]any)["dead"], 0)
		for _, path := range []string{"/statusz", "/readyz?verbose", "/metrics", "/livez"} {
			require.NotContains(t, get(w.Handler(), path).Body.String(), "canary", "an error's text may quote a message")
		}
	})
}

// TestReadOnly: GET and HEAD, four paths, and nothing else.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	w, err := worker.New(builtin.All(), yaml(memoryYAML), worker.Handle("work", nothing))
	require.NoError(t, err)
	defer func() { require.NoError(t, w.Close(t.Context())) }()
	for _, path := range []string{"/livez", "/readyz", "/statusz", "/metrics"} {
		for _, method := range []string{"POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"} {
			rec := httptest.NewRecorder()
			w.Handler().ServeHTTP(rec, httptest.NewRequest(method, path, nil))
			require.Equal(t, http.StatusMethodNotAllowed, rec.Code, "%s %s", method, path)
			require.Equal(t, "GET, HEAD", rec.Header().Get("Allow"))
		}
		rec := httptest.NewRecorder()
		w.Handler().ServeHTTP(rec, httptest.NewRequest(http.MethodHead, path, nil))
		require.NotEqual(t, http.StatusMethodNotAllowed, rec.Code)
	}
	for _, path := range []string{"/", "/livezz", "/livez/x", "/debug/pprof/", "/statusz/../etc"} {
		require.NotEqual(t, http.StatusOK, get(w.Handler(), path).Code, path)
	}
}

func nothing(*message.Message) ([]*message.Message, error) { return nil, nil }

// freePort is one that nobody listened on a moment ago.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

// serve runs a worker until the test ends.
func serve(t *testing.T, listen string, opts ...worker.Option) {
	t.Helper()
	w, err := worker.New(append([]worker.Option{
		builtin.All(), yaml(memoryYAML + "http: {listen: \"" + listen + "\"}\n"), worker.Handle("work", nothing),
	}, opts...)...)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-ended)
	})
	select {
	case <-w.Router().Ready():
	case err := <-ended:
		ended <- nil
		require.NoError(t, err)
	}
}

// ask makes a request over the network with a Host of its own.
func ask(t *testing.T, address, host, path string) (code int, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path, nil)
	require.NoError(t, err)
	r.Host = host
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(r)
	require.NoError(t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return res.StatusCode, string(text)
}

// TestHostAllowList: a page in a browser on this machine must not read the
// texts of errors through a name that it has rebound.
func TestHostAllowList(t *testing.T) {
	t.Parallel()
	address := freePort(t)
	serve(t, address)
	for _, host := range []string{address, "localhost", "localhost:1", "127.0.0.1", "127.8.8.8:80", "[::1]", "[::1]:9610"} {
		code, _ := ask(t, address, host, "/statusz")
		require.Equal(t, http.StatusOK, code, host)
	}
	for _, host := range []string{"attacker.example", "127.evil.com", "localhost.evil.com", "127.0.0.1.nip.io", "0.0.0.0", "[::]", "10.0.0.1:9610", "127.0.0.1@evil"} {
		code, body := ask(t, address, host, "/statusz")
		require.Equal(t, http.StatusMisdirectedRequest, code, host)
		require.NotContains(t, body, "consumers")
	}
}

// TestOpenToTheNetwork: any Host, no texts of errors, and a warning.
func TestOpenToTheNetwork(t *testing.T) {
	t.Parallel()
	_, port, err := net.SplitHostPort(freePort(t))
	require.NoError(t, err)
	log := new(record)
	serve(t, "0.0.0.0:"+port, worker.Log(newLog(log)))
	code, _ := ask(t, "127.0.0.1:"+port, "worker.default.svc", "/statusz")
	require.Equal(t, http.StatusOK, code)
	require.Regexp(t, `level=WARN msg="health, status and metrics can be read by whoever reaches this address" address=\S+:`+port, log.String())
}

// TestPortThatWasAskedForIsTaken: the worker does not start elsewhere.
func TestPortThatWasAskedForIsTaken(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	w, err := worker.New(builtin.All(), yaml(memoryYAML+"http: {listen: \""+l.Addr().String()+"\"}\n"), worker.Handle("work", nothing))
	require.NoError(t, err)
	err = w.Run(t.Context())
	require.ErrorIs(t, err, syscall.EADDRINUSE)
	require.ErrorContains(t, err, "http.listen: listen tcp "+l.Addr().String())
}

// TestClientsThatHold: connections that send nothing keep out neither a worker's
// work nor a probe, and neither headers nor bodies are taken without bound.
func TestClientsThatHold(t *testing.T) {
	t.Parallel()
	address := freePort(t)
	serve(t, address)
	dial := func() net.Conn {
		c, err := net.Dial("tcp", address)
		require.NoError(t, err)
		return c
	}
	held := make([]net.Conn, 100)
	for i := range held {
		held[i] = dial()
		_, err := io.WriteString(held[i], "GET /livez HTTP/1.1\r\n") // and no more
		require.NoError(t, err)
	}
	probe, err := http.Get("http://" + address + "/livez")
	require.NoError(t, err, "a probe is let in")
	require.Equal(t, http.StatusOK, probe.StatusCode)
	require.NoError(t, probe.Body.Close())
	require.NoError(t, held[0].SetReadDeadline(time.Now().Add(10*time.Second)))
	_, err = held[0].Read(make([]byte, 1))
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "the oldest makes room")
	for _, c := range held {
		require.NoError(t, c.Close())
	}
	require.Eventually(t, func() bool {
		c := dial()
		defer c.Close()
		_, _ = fmt.Fprintf(c, "GET /livez HTTP/1.1\r\nHost: localhost\r\nX: %s\r\n\r\n", strings.Repeat("x", 64<<10))
		line, _ := bufio.NewReader(c).ReadString('\n')
		return strings.Contains(line, "431")
	}, 10*time.Second, 10*time.Millisecond, "huge headers are refused, and closed connections make room")
}

// TestDrainCanBeWatched: a process that was told to stop says so until it is gone.
func TestDrainCanBeWatched(t *testing.T) {
	t.Parallel()
	s := newSite(t, "3s", "done")
	s.publish(1)
	p := s.start("run", "--instance", "one", "--set", "http.listen="+freePort(t))
	s.eventually(p, "the handler runs", func() bool { return len(s.traces().start) == 1 })
	url := regexp.MustCompile(`"http":"(http://[^"]+)"`).FindStringSubmatch(p.stderr.String())
	require.NotNil(t, url, p.stderr)
	address := strings.TrimPrefix(url[1], "http://")
	says := func(code int, body string) func() bool {
		return func() bool {
			c, b := ask(t, address, address, "/readyz")
			return c == code && b == body+"\n"
		}
	}
	s.eventually(p, "ready", says(http.StatusOK, "ready"))
	p.signal(syscall.SIGTERM)
	s.eventually(p, "draining", says(http.StatusServiceUnavailable, "draining"))
	require.Empty(t, s.traces().done, "the handler still ran")
	require.Zero(t, p.exit(), p.stderr)
	require.Len(t, s.traces().done, 1)
}
