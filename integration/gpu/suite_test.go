// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

func TestOutcome(t *testing.T) {
	for _, test := range []struct {
		name, found string
		err         error
		result      Result
		detail      string
	}{
		{"passed", "1.0 s", nil, Passed, "1.0 s"},
		{"failed", "", errors.New("lost"), Failed, "lost"},
		{"failed, and keeps what it has", "3 rounds", errors.New("lost"), Failed, "3 rounds; then: lost"},
		{"not run", "", fmt.Errorf("here: %w", skipError("no GPU")), Skipped, "here: no GPU"},
		{"not run, and left something", "", errors.Join(skipError("no GPU"), fmt.Errorf("%w: a container", errLeft)), Failed, "no GPU\nclean up: a container"},
		{"cut short", "3 rounds", fmt.Errorf("%w: killed", errTimeUp), Cut, "3 rounds; then: the run's time was up: killed"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if result, detail := outcome(test.found, test.err); result != test.result || detail != test.detail {
				t.Errorf("%q, %q", result, detail)
			}
		})
	}
}

func TestWithin(t *testing.T) {
	r := row{timeout: 10 * time.Second}
	for left, want := range map[time.Duration]time.Duration{time.Minute: r.timeout, 3 * time.Second: 3 * time.Second} {
		limit, cause := r.within(left)
		if limit != want || errors.Is(cause, errTimeUp) != (left < r.timeout) {
			t.Errorf("of %s left it may take %s: %v", left, limit, cause)
		}
	}
}
