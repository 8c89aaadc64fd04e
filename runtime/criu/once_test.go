// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package criu

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// A success is remembered for this very program; a failure is not.
func TestOnce(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "criu")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(program, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write("one")
	runs, failure := 0, errors.New("no")
	probe := func() error { runs++; return failure }
	state := filepath.Join(dir, "state")
	steps := []struct {
		name string
		set  func()
		runs int
		err  error
	}{
		{"fails", func() {}, 1, failure},
		{"fails again", func() {}, 2, failure},
		{"succeeds", func() { failure = nil }, 3, nil},
		{"is remembered", func() { failure = errors.New("not asked") }, 3, nil},
		{"another program", func() { write("another one"); failure = nil }, 4, nil},
	}
	for _, s := range steps {
		s.set()
		if err := once(t.Context(), program, state, "check", probe); !errors.Is(err, s.err) || runs != s.runs {
			t.Fatalf("%s: got %v after %d runs, want %v after %d", s.name, err, runs, s.err, s.runs)
		}
	}
	if err := once(t.Context(), filepath.Join(dir, "missing"), state, "check", probe); !errors.Is(err, ErrNotFound) || runs != 4 {
		t.Fatalf("got %v after %d runs", err, runs)
	}
}
