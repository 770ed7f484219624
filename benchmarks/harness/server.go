package harness

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// server is a process of this machine, and those it has forked.
type server struct{ pid string }

// tick is the unit of CPU times in /proc, on Linux.
const tick = time.Second / 100

// findServer finds who listens on a port of this machine, nil if it cannot be
// seen from here: it runs elsewhere, or in a container.
func findServer(addr string) *server {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		return nil
	}
	inodes := map[string]bool{}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		b, err := os.ReadFile(table)
		if err != nil {
			continue // no IPv6, or no Linux
		}
		for line := range strings.Lines(string(b)) {
			// sl local_address rem_address st tx:rx tr:tm retrnsmt uid timeout inode; 0A is LISTEN
			if f := strings.Fields(line); len(f) > 9 && f[3] == "0A" && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", n)) {
				inodes["socket:["+f[9]+"]"] = true
			}
		}
	}
	files, _ := filepath.Glob("/proc/[0-9]*/fd/*") // the pattern is well formed
	for _, file := range files {
		to, err := os.Readlink(file)
		if err == nil && inodes[to] {
			if s := (&server{strings.Split(file, "/")[2]}); s.name() != "docker-proxy" {
				return s
			}
		}
	}
	return nil
}

func (s *server) name() string {
	b, _ := os.ReadFile("/proc/" + s.pid + "/comm") // ended meanwhile: then nobody's
	return strings.TrimSpace(string(b))
}

// cpu is what it has used so far, with its children, in ns.
func (s *server) cpu() float64 {
	if s == nil {
		return 0
	}
	children, _ := os.ReadFile("/proc/" + s.pid + "/task/" + s.pid + "/children") // an older kernel: none are seen
	var ticks int64
	for _, pid := range append(strings.Fields(string(children)), s.pid) {
		b, err := os.ReadFile("/proc/" + pid + "/stat") //nolint:gosec // pid is from /proc
		if err != nil {
			continue // ended meanwhile
		}
		// pid (name) state ppid …; the 14th to 17th are its own time and that of its ended children.
		_, rest, _ := strings.Cut(string(b), ") ")
		f := strings.Fields(rest)
		if len(f) < 15 {
			continue
		}
		for _, field := range f[11:15] {
			n, err := strconv.ParseInt(field, 10, 64)
			if err == nil {
				ticks += n
			}
		}
	}
	return float64(ticks) * float64(tick)
}
