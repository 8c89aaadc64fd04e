// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
)

// Output collects what a process writes, and wakes those who wait for it.
type Output struct {
	mu      sync.Mutex
	data    []byte        // guarded by mu
	changed chan struct{} // guarded by mu; closed at the next write
}

// NewOutput returns an empty one.
func NewOutput() *Output { return &Output{changed: make(chan struct{})} }

// Write implements io.Writer.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.data = append(o.data, p...)
	close(o.changed)
	o.changed = make(chan struct{})
	return len(p), nil
}

// Lines returns the complete lines so far.
func (o *Output) Lines() []string {
	lines, _ := o.lines()
	return lines
}

func (o *Output) lines() ([]string, <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	end := bytes.LastIndexByte(o.data, '\n') + 1
	var lines []string
	for line := range strings.Lines(string(o.data[:end])) {
		lines = append(lines, strings.TrimSuffix(line, "\n"))
	}
	return lines, o.changed
}

// Wait returns once enough says so of the lines, or the error that it returns.
func (o *Output) Wait(ctx context.Context, what string, enough func(lines []string) (bool, error)) error {
	for {
		lines, changed := o.lines()
		if done, err := enough(lines); done || err != nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w; its last lines: %q", what, context.Cause(ctx), lines[max(0, len(lines)-5):])
		}
	}
}
