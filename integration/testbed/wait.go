// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// pollInterval is for conditions that nothing announces.
const pollInterval = 5 * time.Millisecond

// permanentError ends Eventually.
type permanentError struct{ error }

func (e permanentError) Unwrap() error { return e.error }

// Permanent marks an error that no further try of Eventually can cure.
func Permanent(err error) error { return permanentError{err} }

// Eventually calls try until it returns nil, a Permanent error, or the
// context ends. It is for conditions that nothing announces: where there is an
// event to wait for, wait for that.
func Eventually(ctx context.Context, what string, try func() error) error {
	return eventually(ctx, pollInterval, what, try)
}

func eventually(ctx context.Context, interval time.Duration, what string, try func() error) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		err := try()
		if err == nil {
			return nil
		}
		if permanent := (permanentError{}); errors.As(err, &permanent) {
			return fmt.Errorf("wait until %s: %w", what, permanent.error)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w; last: %w", what, context.Cause(ctx), err)
		case <-ticker.C:
		}
	}
}
