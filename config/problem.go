package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

const (
	maxPrinted = 20
	maxKept    = 1000
)

// Problem is one thing that is wrong with a configuration, where, and how to mend it.
type Problem struct {
	// File is the name of the file as it was given, or "--set PATH" for a value from an overlay.
	File string
	// Line and Col count from 1, Col in characters. Both are 0 where a problem belongs to no line.
	Line, Col int
	// Path is where the problem stands in the configuration: consumers.charge.retry.attempts, use[1].
	Path string
	// Message says what is wrong, without a secret in it.
	Message string
	// Source is the line as written (references not replaced), secrets masked, cut to a window around Col if it is long.
	Source string

	caret int   // where Col falls in Source, from 0
	at    place // what Source is cut from
}

// String is "file:line:col: message" and, below it, the source line with a caret.
func (p Problem) String() string {
	var b strings.Builder
	if p.File != "" {
		b.WriteString(p.File)
		if p.Line > 0 {
			fmt.Fprintf(&b, ":%d:%d", p.Line, p.Col)
		}
		b.WriteString(": ")
	}
	b.WriteString(p.Message)
	if p.Source != "" {
		number := fmt.Sprint(p.Line)
		fmt.Fprintf(&b, "\n    %s | %s\n    %s | %s^", number, p.Source,
			strings.Repeat(" ", len(number)), strings.Repeat(" ", p.caret))
	}
	return b.String()
}

// Error holds everything that is wrong, sorted by file and position.
// It keeps the first 1,000 problems and prints the first 20 and how many are left.
type Error struct {
	Problems []Problem
}

// Error renders the problems one below the other.
func (e *Error) Error() string {
	var b strings.Builder
	for i, p := range e.Problems {
		if i == maxPrinted {
			fmt.Fprintf(&b, "\n… and %d more", len(e.Problems)-i)
			break
		}
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(p.String())
	}
	return b.String()
}

// Join makes one [*Error] of several errors, so that the problems of all components are seen at once.
// An error that is not an [*Error] becomes a problem without a position. Join returns nil where every error is nil.
func Join(errs ...error) error {
	var r report
	for _, err := range errs {
		if err == nil {
			continue
		}
		if e, ok := errors.AsType[*Error](err); ok {
			r.problems = append(r.problems, e.Problems...)
		} else {
			r.problems = append(r.problems, Problem{Message: MaskURL(err.Error())})
		}
	}
	return r.err()
}

// report collects problems.
type report struct {
	problems []Problem
}

// add notes a problem at a place. The text goes through the URL mask: it may quote a value.
func (r *report) add(at place, path, format string, args ...any) {
	if len(r.problems) >= maxKept {
		return
	}
	p := Problem{Path: path, Message: MaskURL(fmt.Sprintf(format, args...))}
	if at.src != nil {
		p.File, p.Line, p.Col, p.at = at.src.name, at.line, at.col, at
	}
	r.problems = append(r.problems, p)
}

// sorted returns the problems by position, without repetitions. Only now are source lines cut, since which parts of a line
// are secret may have been learnt after a problem in it was found.
func (r *report) sorted() []Problem {
	for i := range r.problems {
		if p := &r.problems[i]; p.at.src != nil {
			p.Source, p.caret = p.at.src.snippet(p.Line, p.Col)
		}
	}
	slices.SortStableFunc(r.problems, func(a, b Problem) int {
		if c := strings.Compare(a.File, b.File); c != 0 {
			return c
		}
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return a.Col - b.Col
	})
	return slices.Compact(r.problems)
}

// err returns the problems as an error, nil where there are none.
func (r *report) err() error {
	if len(r.problems) == 0 {
		return nil
	}
	return &Error{Problems: r.sorted()}
}
