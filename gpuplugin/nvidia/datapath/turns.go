// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// turns are of processes that need room on devices for a moment, to copy what they have:
// all at once they take from one another what is enough for each of them. They are had in
// the order in which they are asked for; no lock is held meanwhile.
type turns struct {
	mu   sync.Mutex
	line []*turn
}

// turn is one that is had or waited for.
type turn struct {
	devices []string
	// alone is that of one who shares its devices with nobody. The others go on beside one
	// another.
	alone bool
	over  chan struct{}
}

// turnTimeout is how long a turn is waited for. A process that waits is not asked for
// anything, and goes on by itself after 10 minutes (HETCUDA_THINKING_MS in libhetcuda).
const turnTimeout = 5 * time.Minute

// take waits for a turn; done ends it.
func (t *turns) take(ctx context.Context, devices []string, alone bool) (done func(), err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, turnTimeout, fmt.Errorf("others on its devices were not done within %v: %w", turnTimeout, context.DeadlineExceeded))
	defer cancel()
	mine := &turn{devices: devices, alone: alone, over: make(chan struct{})}
	done = func() { t.end(mine) }
	for _, before := range t.join(mine) {
		select {
		case <-before.over:
		case <-ctx.Done():
			done()
			return nil, context.Cause(ctx)
		}
	}
	return done, nil
}

// join returns those that have to be over first.
func (t *turns) join(mine *turn) (first []*turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, other := range t.line {
		if (mine.alone || other.alone) && slices.ContainsFunc(mine.devices, func(uuid string) bool { return slices.Contains(other.devices, uuid) }) {
			first = append(first, other)
		}
	}
	t.line = append(t.line, mine)
	return first
}

func (t *turns) end(mine *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.line = slices.DeleteFunc(t.line, func(other *turn) bool { return other == mine })
	close(mine.over)
}
