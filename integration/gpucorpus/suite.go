// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/corpus"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/corpus/curun"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/corpus/harness"
)

const (
	// base is where device memory is asked to begin.
	base = 0x2000_0000_0000
	// requestTimeout is for one request of a child: a compilation, or a kernel.
	requestTimeout = 30 * time.Second
)

// suite is one run of the program.
type suite struct {
	config
	report Report
}

func (s *suite) run(ctx context.Context) (failed bool, err error) {
	if s.program == "" && !s.rehearse {
		dir, err := os.MkdirTemp("", "curun")
		if err != nil {
			return true, err
		}
		defer os.RemoveAll(dir)
		if s.program, err = curun.Build(ctx, dir); err != nil {
			return true, err
		}
	}
	// Without a device nothing can be said.
	d, err := s.start(ctx, harness.WindowSize)
	if err != nil {
		return true, err
	}
	s.report.Device = d.Facts
	s.report.Base = d.Base
	if err := d.Close(); err != nil {
		return true, err
	}
	parts := strings.Split(s.parts, ",")
	for _, part := range []struct {
		name string
		do   func(context.Context)
	}{{"programs", s.programs}, {"loops", s.loops}, {"benchmarks", s.benchmarks}, {"opencl", s.openCL}, {"nvcc", s.fromNVCC}} {
		if !slices.Contains(parts, part.name) {
			continue
		}
		start := time.Now()
		part.do(ctx)
		s.say("%s: %.1f s", part.name, time.Since(start).Seconds())
		s.report.Seconds = time.Since(s.report.Started).Seconds()
		if err := s.report.Write(s.out); err != nil {
			return true, err
		}
	}
	s.say("%s", s.report.Summary())
	return s.report.Failed(), nil
}

func (s *suite) say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%5.1f s  %s\n", time.Since(s.report.Started).Seconds(), fmt.Sprintf(format, args...))
}

// start opens the GPU in a process of its own.
func (s *suite) start(ctx context.Context, window uint64) (*curun.Device, error) {
	o := curun.Options{Program: s.program, Library: s.library, Base: base, Size: window, Timeout: requestTimeout}
	if s.rehearse {
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		o.Program, o.Env, o.Timeout = self, []string{rehearsing + "=1"}, 5*time.Minute
	}
	// Its requests have time-outs of their own; that the time is up ends none of them.
	return curun.Start(context.WithoutCancel(ctx), o)
}

// pair is two processes with the GPU open, between which programs move.
type pair struct {
	s       *suite
	window  uint64
	devices [2]*curun.Device
}

// take returns them, started if need be.
func (p *pair) take(ctx context.Context) ([2]*curun.Device, error) {
	for i := range p.devices {
		if p.devices[i] != nil {
			continue
		}
		d, err := p.s.start(ctx, p.window)
		if err != nil {
			return p.devices, fmt.Errorf("start the GPU's process: %w", err)
		}
		if d.Base != p.s.report.Base {
			return p.devices, errors.Join(fmt.Errorf("device memory is at %#x here, and was at %#x", d.Base, p.s.report.Base), d.Close())
		}
		p.devices[i] = d
	}
	return p.devices, nil
}

// drop gives the processes up, after a kernel's fault.
func (p *pair) drop() {
	for i, d := range p.devices {
		if d != nil {
			_ = d.Close() // its kernel may have broken it
		}
		p.devices[i] = nil
	}
}

// programs runs the corpus.
func (s *suite) programs(ctx context.Context) {
	s.report.Programs = s.each(func(p *pair, c *corpus.Case) *Program { return p.program(ctx, c, "") })
}

// each does something with each program, with several at a time.
func (s *suite) each(do func(*pair, *corpus.Case) *Program) []*Program {
	var (
		queue   = make(chan *corpus.Case)
		workers sync.WaitGroup
		mu      sync.Mutex
		results []*Program
	)
	for range s.workers {
		workers.Go(func() {
			p := &pair{s: s, window: harness.WindowSize}
			defer p.drop()
			for c := range queue {
				result := do(p, c)
				if result == nil {
					continue
				}
				mu.Lock()
				results = append(results, result)
				mu.Unlock()
				if f := result.Failures(); len(f) > 0 {
					s.say("%s: %s", c.Name, strings.Join(f, "; "))
				}
			}
		})
	}
	for _, c := range corpus.All() {
		if s.wants(c.Name) {
			queue <- c
		}
	}
	close(queue)
	workers.Wait()
	slices.SortFunc(results, func(a, b *Program) int { return strings.Compare(a.Name, b.Name) })
	return results
}
