// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/containerd/log"

	"github.com/hetgpu/containerd-shim-hetgpu/internal/logfields"
)

// rollback is what has to be undone if a later step fails, last step first.
type rollback struct {
	steps []undo
	// timeout bounds each step.
	timeout time.Duration
}

type undo struct {
	name string
	do   func(context.Context) error
}

func (r *rollback) add(name string, do func(context.Context) error) {
	r.steps = append(r.steps, undo{name, do})
}

// drop forgets the last n steps: what they would undo was undone, or is final.
func (r *rollback) drop(n int) { r.steps = r.steps[:len(r.steps)-n] }

// run undoes everything, whether or not ctx has ended, and goes on after an
// error. Its error has all of them.
func (r *rollback) run(ctx context.Context) error {
	var errs []error
	for len(r.steps) > 0 {
		step := r.steps[len(r.steps)-1]
		r.drop(1)
		if err := r.one(ctx, step); err != nil {
			errs = append(errs, fmt.Errorf("roll back: %s: %w", step.name, err))
		}
	}
	return errors.Join(errs...)
}

func (r *rollback) one(ctx context.Context, step undo) error {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), r.timeout, fmt.Errorf("not done within %s", r.timeout))
	defer cancel()
	log.G(ctx).WithField(logfields.Phase, step.name).Info("rolling back")
	return step.do(ctx)
}
