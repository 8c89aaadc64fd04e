// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/corpus"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/corpus/clrun"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/corpus/curun"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/corpus/harness"
)

// poclName is in the name of PoCL's platform.
const poclName = "Portable Computing Language"

// platform is one of OpenCL's, as it is opened, and what it is or why it isn't there.
type platform struct {
	options clrun.Options
	Name    string `json:"name,omitempty"`
	Missing string `json:"missing,omitempty"`
	// Notes are what was tried and did not work.
	Notes []string `json:"notes,omitempty"`
}

// opened is a platform's device in a process of its own, for one worker.
type opened struct {
	platform *platform
	device   harness.OpenCL
}

func (o *opened) take(ctx context.Context) error {
	if o.device.Device != nil {
		return nil
	}
	d, err := clrun.Start(context.WithoutCancel(ctx), o.platform.options)
	o.device = harness.OpenCL{Device: d, Up: true}
	return err
}

func (o *opened) drop() {
	if o.device.Device != nil {
		_ = o.device.Device.Close() // a kernel may have broken it
	}
	o.device = harness.OpenCL{}
}

// find opens a platform once, to see that it is there. A rehearsal has PoCL in
// the place of NVIDIA's.
func (s *suite) find(ctx context.Context, p *platform) {
	o := &opened{platform: p}
	if err := o.take(ctx); err != nil {
		p.Missing = err.Error()
		return
	}
	p.Name = o.device.Device.Name
	o.drop()
}

// platforms are NVIDIA's and PoCL's.
func (s *suite) platforms(ctx context.Context, dir string) (nvidia, pocl *platform) {
	o := clrun.Options{Program: s.clrun, Base: base, Size: harness.WindowSize, Timeout: time.Minute}
	if o.Program == "" {
		program, err := clrun.Build(ctx, dir)
		if err != nil {
			missing := &platform{Missing: err.Error()}
			return missing, missing
		}
		o.Program = program
	}
	nvidia, pocl = &platform{options: o}, &platform{options: o}
	// PoCL 3.1's default way to make loops of work items calls itself without end for
	// some kernels.
	pocl.options.Platform = poclName
	pocl.options.Env = []string{
		"POCL_CACHE_DIR=" + dir, "POCL_WORK_GROUP_METHOD=loops", "POCL_MAX_PTHREAD_COUNT=2", "POCL_CPU_MAX_CU_COUNT=2",
	}
	if s.rehearse {
		nvidia.options = pocl.options
	} else {
		nvidia.options.Platform = "NVIDIA"
		nvidia.options.Env = vendors(dir)
	}
	s.find(ctx, nvidia)
	s.find(ctx, pocl)
	if nvidia.Missing == "" {
		s.choose(ctx, nvidia)
	}
	return nvidia, pocl
}

// vendors names NVIDIA's library to the loader of OpenCL, where no file of the
// system does.
func vendors(dir string) []string {
	for _, lib := range []string{
		"/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/nvidia/lib64",
	} {
		lib = filepath.Join(lib, "libnvidia-opencl.so.1")
		if _, err := os.Stat(lib); err != nil {
			continue
		}
		at := filepath.Join(dir, "vendors")
		if errors.Join(os.MkdirAll(at, 0o755), os.WriteFile(filepath.Join(at, "nvidia.icd"), []byte(lib+"\n"), 0o600)) == nil {
			return []string{"OCL_ICD_VENDORS=" + at, "OPENCL_VENDOR_PATH=" + at}
		}
	}
	return nil
}

// openCL runs the corpus through NVIDIA's OpenCL, and moves it from the GPU to PoCL
// and back.
func (s *suite) openCL(ctx context.Context) {
	dir, err := os.MkdirTemp("", "opencl")
	if err != nil {
		s.say("OpenCL: %v", err)
		return
	}
	defer os.RemoveAll(dir)
	nvidia, pocl := s.platforms(ctx, dir)
	s.report.OpenCL, s.report.PoCL = nvidia, pocl
	s.say("OpenCL: %s%s; PoCL: %s%s", nvidia.Name, nvidia.Missing, pocl.Name, pocl.Missing)
	known := map[string]*Program{}
	for _, r := range s.report.Programs {
		known[r.Name] = r
	}
	devices := make(chan [2]*opened, s.workers)
	for range s.workers {
		devices <- [2]*opened{{platform: nvidia}, {platform: pocl}}
	}
	s.report.Programs = s.each(func(p *pair, c *corpus.Case) *Program {
		d := <-devices
		defer func() { devices <- d }()
		r := known[c.Name]
		if r == nil {
			r = &Program{Name: c.Name, File: c.File}
		}
		p.openCL(ctx, c, r, d[0], d[1])
		return r
	})
	for range s.workers {
		d := <-devices
		d[0].drop()
		d[1].drop()
	}
}

// cl runs one test on a platform.
func (w *way) cl(ctx context.Context, o *Outcome, on *opened, do func() error) {
	switch {
	case on.platform.Missing != "":
		o.NotRun = on.platform.Missing
		return
	case ctx.Err() != nil:
		o.NotRun = noTime
		return
	}
	start := time.Now()
	err := on.take(ctx)
	if err == nil {
		err = do()
	}
	if errors.Is(err, harness.ErrNotWritten) {
		o.NotRun = err.Error()
		return
	}
	o.end(start, err)
	if err != nil {
		on.drop()
	}
}

func (p *pair) openCL(ctx context.Context, c *corpus.Case, r *Program, nvidia, pocl *opened) {
	first, err := harness.Prepared(c, "", p.s.report.Base)
	if err != nil {
		r.OpenCL.Error = err.Error()
		return
	}
	w := &way{pair: p, first: first, result: r}
	points := false
	for _, plan := range first.Plans {
		points = points || len(plan.Points) > 0
	}
	w.cl(ctx, &r.OpenCL, nvidia, func() error {
		program, err := first.Again(nvidia.device.Device.Base)
		if err != nil {
			return err
		}
		return check(ctx, program, &nvidia.device)
	})
	if !points {
		r.OpenCLMoved.NotRun, r.ToPoCL.NotRun = notPausable, notPausable
		return
	}
	if r.OpenCL.Passed {
		w.cl(ctx, &r.OpenCLMoved, nvidia, func() error {
			return w.moves(ctx, &r.OpenCLMoved, nvidia.device.Device.Base, harness.Interpreter{First: true}, &nvidia.device)
		})
	}
	if !pausable(first) {
		r.ToPoCL.NotRun = notPausable
		return
	}
	w.cl(ctx, &r.ToPoCL, pocl, func() error {
		if pocl.device.Device.Base != p.s.report.Base {
			return fmt.Errorf("PoCL's memory is at %#x, the GPU's at %#x", pocl.device.Device.Base, p.s.report.Base)
		}
		text, err := harness.NVPTX(first, stepping)
		if err != nil {
			return err
		}
		var moved error
		w.test(ctx, &r.ToPoCL, func(d [2]*curun.Device) (err error) {
			if w.steps, err = compile(d[0], text, &r.ToPoCL); err == nil {
				both := w.onBoth(d)
				err = w.moves(ctx, &r.ToPoCL, p.s.report.Base, both[0], &pocl.device, both[1], &pocl.device)
			}
			moved = err
			return err
		})
		return moved
	})
}
