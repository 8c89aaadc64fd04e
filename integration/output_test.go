// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// output collects what a process writes, and wakes those who wait for it.
type output struct {
	mu      sync.Mutex
	data    []byte
	changed chan struct{}
	// partial says that the first line may lack its beginning.
	partial bool
}

func newOutput() *output { return &output{changed: make(chan struct{})} }

// Write implements io.Writer.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.data = append(o.data, p...)
	close(o.changed)
	o.changed = make(chan struct{})
	return len(p), nil
}

// String returns what was written so far.
func (o *output) String() string {
	data, _ := o.get()
	return string(data)
}

func (o *output) get() ([]byte, <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return bytes.Clone(o.data), o.changed
}

// wait returns once enough says so of what was written.
func (o *output) wait(ctx context.Context, what string, enough func(string) bool) error {
	for {
		data, changed := o.get()
		if enough(string(data)) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w; output so far: %q", what, context.Cause(ctx), data)
		}
	}
}

// waitFor waits until the output contains some text.
func (o *output) waitFor(ctx context.Context, t *testing.T, text string) {
	t.Helper()
	if err := o.wait(ctx, strconv.Quote(text), func(s string) bool { return strings.Contains(s, text) }); err != nil {
		t.Fatal(err)
	}
}

// waitMore waits for n lines more than there are, and returns the numbers on
// all lines.
func (o *output) waitMore(ctx context.Context, t *testing.T, n int) []int {
	t.Helper()
	before := strings.Count(o.String(), "\n")
	enough := func(s string) bool { return strings.Count(s, "\n") >= before+n || strings.Contains(s, "FAIL") }
	if err := o.wait(ctx, fmt.Sprintf("%d more lines", n), enough); err != nil {
		t.Fatal(err)
	}
	return o.numbers(t)
}

// numbers returns what a counter printed. Whatever is no number, or not one
// more than the number before, fails the test.
func (o *output) numbers(t *testing.T) []int {
	t.Helper()
	var all []int
	text := o.String()
	if o.partial {
		_, text, _ = strings.Cut(text, "\n")
	}
	for line := range strings.Lines(text) {
		if !strings.HasSuffix(line, "\n") {
			break
		}
		n, err := strconv.Atoi(strings.TrimSpace(line))
		if err != nil {
			t.Fatalf("the counter says %q", line)
		}
		if len(all) > 0 && n != all[len(all)-1]+1 {
			t.Fatalf("the counter went from %d to %d", all[len(all)-1], n)
		}
		all = append(all, n)
	}
	return all
}

// dropPartialLine makes numbers leave out the first line, which may lack its
// beginning. For streams that somebody else has read from.
func (o *output) dropPartialLine() { o.partial = true }

// last returns the newest number of a counter.
func (o *output) last(t *testing.T) int {
	t.Helper()
	all := o.numbers(t)
	if len(all) == 0 {
		return 0
	}
	return all[len(all)-1]
}
