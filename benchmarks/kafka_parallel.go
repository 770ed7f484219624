package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/leat-io/leat/benchmarks/harness"
)

// warmUps is how many runs a JVM has before one is measured.
const warmUps = 3

// parallelConsumer is Confluent's Parallel Consumer in a process of its own,
// which stays from round to round: a JVM is slow at first.
type parallelConsumer struct {
	topics *kafkaTopics
	java   []string // arguments for the JVM

	cmd *exec.Cmd
	in  io.WriteCloser
	out io.Reader
}

// parallelMissing says why it cannot be measured; empty: it can.
func parallelMissing() string {
	for _, program := range []string{"mvn", "java"} {
		if _, err := exec.LookPath(program); err != nil {
			return program + " is not installed"
		}
	}
	return ""
}

// run has so many messages at once.
func (p *parallelConsumer) run(slots int) func(*harness.Meter, int) error {
	return func(m *harness.Meter, n int) error {
		runs := 1
		if p.cmd == nil {
			if err := p.start(); err != nil {
				return fmt.Errorf("parallel consumer: %w", err)
			}
			runs += warmUps
		}
		name, err := p.topics.with(1, twice*n)
		if err != nil {
			return err
		}
		var wall, cpu float64
		for range runs {
			begin := (twice - 1) * n / 2
			if _, err := fmt.Fprintln(p.in, name, p.topics.group(), slots, begin, begin+n, work.Milliseconds()); err != nil {
				return err
			}
			if _, err := fmt.Fscan(p.out, &wall, &cpu); err != nil {
				return fmt.Errorf("parallel consumer: answer: %w", err)
			}
		}
		m.Add(harness.Cost{Wall: wall, CPU: cpu})
		return nil
	}
}

// start builds it where that was not done yet, and starts a JVM.
func (p *parallelConsumer) start() error {
	const dir = "parallel-consumer"
	build := exec.CommandContext(background(), "mvn", "-q", "-B", "compile")
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("mvn compile: %w: %s", err, out)
	}
	path := []string{filepath.Join(dir, "target", "classes"), filepath.Join(dir, "target", "dependency", "*")}
	args := slices.Concat(p.java, []string{"-cp", strings.Join(path, ":"), "Bench", strings.Join(kafkaSeeds(), ",")})
	p.cmd = exec.CommandContext(background(), "java", args...)
	p.cmd.Stderr, p.cmd.WaitDelay = os.Stderr, time.Second
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return err
	}
	if p.out, err = p.cmd.StdoutPipe(); err != nil {
		return err
	}
	return p.cmd.Start()
}

// stop ends the JVM, which reads to the end of its input.
func (p *parallelConsumer) stop() error {
	if p.cmd == nil {
		return nil
	}
	err := errors.Join(p.in.Close(), p.cmd.Wait())
	p.cmd = nil
	return err
}
