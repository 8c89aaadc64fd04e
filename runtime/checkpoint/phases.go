// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"context"
	"fmt"
	"time"

	"github.com/containerd/log"

	"github.com/hetgpu/containerd-shim-hetgpu/internal/logfields"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/snapshot"
)

// The names of the phases, in a manifest and in errors. docs/formats.md
// describes them.
const (
	PhasePreflight = "preflight"
	PhaseThaw      = "thaw"
	PhaseLock      = "gpu-lock"
	PhasePark      = "gpu-park"
	PhaseSuspend   = "gpu-suspend"
	PhaseCopy      = "gpu-copy"
	PhaseDrain     = "gpu-drain"
	PhaseKeep      = "gpu-keep"
	PhaseFreeze    = "freeze"
	PhaseDump      = "dump"
	PhaseLayer     = "layer"
	PhasePack      = "layer-pack"
	PhaseResume    = "gpu-resume"
	PhaseSeal      = "seal"
	PhaseManifest  = "manifest"
	PhaseKill      = "kill"
	PhaseVerify    = "verify"
	PhaseLoad      = "gpu-load"
)

// phases measures the steps of an operation.
type phases struct {
	done     []snapshot.Phase
	progress Progress // may be nil
}

// run runs one step; its error names the step.
func (p *phases) run(ctx context.Context, name string, step func(context.Context) error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", name, context.Cause(ctx))
	}
	if p.progress != nil {
		p.progress.Begin(name)
	}
	start := time.Now()
	err := step(ctx)
	took := time.Since(start).Seconds()
	p.done = append(p.done, snapshot.Phase{Name: name, Seconds: took})
	log.G(ctx).WithError(err).WithField(logfields.Phase, name).WithField(logfields.Seconds, took).Debug("phase ended")
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
