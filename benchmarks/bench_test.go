package main

import (
	"testing"
)

// BenchmarkGroups is every case of every table by itself, without rounds.
func BenchmarkGroups(b *testing.B) {
	for _, g := range groups() {
		b.Run(g.ID, g.Bench)
	}
}
