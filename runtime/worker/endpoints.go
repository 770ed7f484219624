package worker

import (
	"encoding/json"
	"net"
	"net/http"
	"time"

	"github.com/leat-io/leat/config"
	"github.com/leat-io/leat/runtime"
)

// Headers that say which worker answers; `healthcheck` compares them.
const (
	nameHeader     = "Leat-Name"
	instanceHeader = "Leat-Instance"
)

// stuckAfter is how long the engine may stand still before /livez fails.
const stuckAfter = 10 * time.Second

// Handler serves what http.listen would, for a program that has an HTTP server
// of its own. Everything is read-only, and answers GET and HEAD alone:
//
//	/livez    503 if the engine itself is stuck; never for a broker, a store or a slow handler
//	/readyz   200 from the first complete start until the drain begins; ?verbose: JSON
//	/statusz  JSON: every consumer's state, and why
//	/metrics  for Prometheus; 404 where [Meters] has metrics go elsewhere
//
// The text of a handler's error, which may quote a message, is not shown; it
// is where the worker itself listens on a loopback address.
func (w *Worker) Handler() http.Handler { return w.endpoints(false) }

// endpoints makes the handler. A local one shows the text of errors, and so
// refuses a Host that is not local: a page that a browser on this machine
// shows could else read them through a name that it rebinds. Others show
// nothing that needs it, and cannot know the names they are called by.
//
// All answers are given within a time, also by an engine that is stuck.
func (w *Worker) endpoints(local bool) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", w.livez)
	mux.HandleFunc("GET /readyz", w.readyz)
	mux.HandleFunc("GET /statusz", func(rw http.ResponseWriter, _ *http.Request) {
		writeJSON(rw, http.StatusOK, w.status(local))
	})
	if w.metrics != nil {
		mux.Handle("GET /metrics", w.metrics)
	}
	timed := http.TimeoutHandler(mux, answerTimeout, "the engine did not answer\n")
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if local && !isLocal(r.Host) {
			http.Error(rw, "this address answers to localhost alone", http.StatusMisdirectedRequest)
			return
		}
		h := rw.Header()
		h.Set(nameHeader, w.cfg.Name)
		h.Set(instanceHeader, w.instance.ID)
		h.Set("Cache-Control", "no-store")
		h.Set("X-Content-Type-Options", "nosniff")
		timed.ServeHTTP(rw, r)
	})
}

// isLocal tells whether a Host header names this machine's loopback.
func isLocal(host string) bool {
	name := hostOf(host)
	if len(name) > 1 && name[0] == '[' && name[len(name)-1] == ']' {
		name = name[1 : len(name)-1]
	}
	ip := net.ParseIP(name)
	return name == "localhost" || ip.IsLoopback()
}

func (w *Worker) livez(rw http.ResponseWriter, _ *http.Request) {
	if err := w.router.Alive(stuckAfter); err != nil {
		http.Error(rw, err.Error(), http.StatusServiceUnavailable)
		return
	}
	writeText(rw, "ok")
}

func (w *Worker) readyz(rw http.ResponseWriter, r *http.Request) {
	state, code := w.readiness(), http.StatusOK
	if state != "ready" {
		code = http.StatusServiceUnavailable
	}
	switch {
	case r.URL.Query().Has("verbose"):
		type check struct {
			Consumer string        `json:"consumer"`
			State    runtime.State `json:"state"`
			Why      string        `json:"why,omitempty"`
		}
		checks := []check{}
		for _, s := range w.router.Status() {
			checks = append(checks, check{s.Consumer, s.State, config.MaskURL(s.Why)})
		}
		writeJSON(rw, code, map[string]any{"state": state, "consumers": checks})
	case code != http.StatusOK:
		http.Error(rw, state, code)
	default:
		writeText(rw, state)
	}
}

// readiness is starting, ready or draining.
func (w *Worker) readiness() string {
	if w.router.Draining() {
		return "draining"
	}
	select {
	case <-w.router.Ready():
		return "ready"
	default:
		return "starting"
	}
}

// workerStatus is what /statusz tells.
type workerStatus struct {
	Name      string           `json:"name"`
	Instance  string           `json:"instance"`
	Version   string           `json:"version"`
	State     string           `json:"state"`
	Uptime    float64          `json:"uptime_seconds"`
	Consumers []consumerStatus `json:"consumers"`
}

type consumerStatus struct {
	runtime.Status

	Oldest float64 `json:"oldest_in_flight_seconds"`
}

func (w *Worker) status(errorTexts bool) workerStatus {
	out := workerStatus{
		Name: w.cfg.Name, Instance: w.instance.ID, Version: version(), State: w.readiness(),
		Uptime: time.Since(w.began).Seconds(), Consumers: []consumerStatus{},
	}
	for _, s := range w.router.Status() {
		s.Why, s.LastError = config.MaskURL(s.Why), config.MaskURL(s.LastError)
		if !errorTexts {
			s.LastError = ""
		}
		out.Consumers = append(out.Consumers, consumerStatus{s, s.Oldest.Seconds()})
	}
	return out
}

func writeText(rw http.ResponseWriter, text string) {
	rw.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = rw.Write([]byte(text + "\n")) // the client may be gone
}

func writeJSON(rw http.ResponseWriter, code int, v any) {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		http.Error(rw, err.Error(), http.StatusInternalServerError)
		return
	}
	rw.Header().Set("Content-Type", "application/json")
	rw.WriteHeader(code)
	_, _ = rw.Write(append(text, '\n')) // the client may be gone
}
