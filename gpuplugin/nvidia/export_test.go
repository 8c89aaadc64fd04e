// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package nvidia

import "time"

// Luby is luby, for tests.
var Luby = luby

// WithGrace changes how long a call may outlive its context.
func WithGrace(d time.Duration) Option { return func(c *config) { c.grace = d } }

// WithStateTimeout changes how long one answer about a process may take.
func WithStateTimeout(d time.Duration) Option { return func(c *config) { c.stateTimeout = d } }

// Printable is printable, for tests.
var Printable = printable

// PID is that of the current helper.
func (h *Helper) PID() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.current.cmd.Process.Pid
}

// Calls is how many calls the current helper is busy with.
func (h *Helper) Calls() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.current.calls
}

// NewStorageEngineOn makes the engine on any mover.
var NewStorageEngineOn = newStorageEngine
