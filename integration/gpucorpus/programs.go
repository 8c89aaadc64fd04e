// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/corpus"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/corpus/curun"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/corpus/harness"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/nvptx"
)

// stepping is the PTX that is stopped at point after point: by a flag that is up
// from the beginning, since the corpus' kernels end within microseconds.
var stepping = nvptx.Checks{Barriers: 4, Rounds: 4, Clocks: 1, Late: true}

// tries is how often a program is run to be stopped at any time.
const tries = 20

// early is how long a flag takes to the device, and a launch too.
const early = 15 * time.Microsecond

// program does all there is to do with one program.
func (p *pair) program(ctx context.Context, c *corpus.Case) *Program {
	r := &Program{Name: c.Name, File: c.File}
	own, err := corpus.PTX(c.File)
	if err != nil {
		r.Own.Error = err.Error()
		return r
	}
	prepared, err := harness.Prepared(c, p.s.report.Base)
	if err != nil {
		r.Ours.Error = err.Error()
		return r
	}
	for _, f := range prepared.Module.Funcs {
		plan := prepared.Plans[f]
		if plan == nil {
			continue
		}
		k := &Kernel{Name: f.Name, Class: plan.Class.String(), Points: len(plan.Points)}
		if err := nvptx.Pausable(prepared.Module, plan); err != nil {
			k.Refused = err.Error()
		}
		r.Kernels = append(r.Kernels, k)
	}
	ours, err1 := harness.NVPTX(prepared, nvptx.Checks{})
	steps, err2 := harness.NVPTX(prepared, stepping)
	if err := errors.Join(err1, err2); err != nil {
		r.Ours.Error = err.Error()
		return r
	}
	r.Bytes = len(ours)
	p.test(ctx, &r.Own, func(d [2]*curun.Device) ([]byte, error) { return nil, p.own(ctx, c.Name, r, own, d) })
	code := p.test(ctx, &r.Ours, func(d [2]*curun.Device) ([]byte, error) { return p.ours(ctx, c.Name, r, ours, d) })
	if !r.pausable() {
		r.Stopped.NotRun, r.Stepped.NotRun, r.Moved.NotRun = notPausable, notPausable, notPausable
		return r
	}
	if code != nil {
		p.test(ctx, &r.Stopped, func(d [2]*curun.Device) ([]byte, error) { return nil, p.stopped(ctx, c.Name, r, code, d) })
	}
	p.test(ctx, &r.Stepped, func(d [2]*curun.Device) ([]byte, error) {
		code, err := compile(d[0], steps, &r.Stepped)
		if err != nil {
			return nil, err
		}
		err = p.moves(ctx, c.Name, &r.Stepped, onBoth(d, code)...)
		if err == nil {
			p.test(ctx, &r.Moved, func(d [2]*curun.Device) ([]byte, error) {
				both := onBoth(d, code)
				return nil, p.moves(ctx, c.Name, &r.Moved, harness.Interpreter{First: true}, both[0], harness.Interpreter{First: true}, both[1])
			})
		}
		return nil, err
	})
	return r
}

const notPausable = "no kernel of it is paused on NVIDIA's devices"

func onBoth(d [2]*curun.Device, code []byte) []harness.Device {
	return []harness.Device{&harness.CUDA{Device: d[0], Code: code, Up: true}, &harness.CUDA{Device: d[1], Code: code, Up: true}}
}

// test runs one test, whose error is its outcome's. Processes in which something
// went wrong are given up.
func (p *pair) test(ctx context.Context, o *Outcome, do func([2]*curun.Device) ([]byte, error)) []byte {
	if ctx.Err() != nil {
		o.NotRun = "no time was left"
		return nil
	}
	d, err := p.take(ctx)
	if err != nil {
		o.Error = err.Error()
		p.drop()
		return nil
	}
	start := time.Now()
	code, err := do(d)
	o.Seconds = time.Since(start).Seconds()
	if err != nil {
		o.Error = err.Error()
		p.drop()
		return nil
	}
	o.Passed = true
	return code
}

// compile compiles PTX, or else leaves that to the driver when it is loaded.
func compile(d *curun.Device, text string, o *Outcome) ([]byte, error) {
	start := time.Now()
	code, log, err := d.Compile(text)
	o.CompileSeconds = time.Since(start).Seconds()
	if err != nil {
		return nil, fmt.Errorf("the driver's compiler: %w", err)
	}
	o.CodeBytes = len(code)
	for line := range strings.Lines(log) {
		// Of each kernel it says what it uses; that is asked for elsewhere.
		if strings.Contains(line, "warning") || strings.Contains(line, "spill") && !strings.Contains(line, " 0 bytes spill stores, 0 bytes spill loads") {
			o.Log += line
		}
	}
	return code, nil
}

// check runs all launches of a program on a device, and compares.
func check(ctx context.Context, p *harness.Program, d harness.Device) error {
	for i := range p.Case.Launches {
		l, err := p.Launch(i)
		if err != nil {
			return err
		}
		if err := d.Run(ctx, l, nil); err != nil {
			return fmt.Errorf("launch %d: %w", i, err)
		}
	}
	return p.Check()
}

func (p *pair) prepared(name string) (*harness.Program, error) {
	return harness.Prepared(corpus.Get(name), p.s.report.Base)
}

// own runs the program's own PTX.
func (p *pair) own(ctx context.Context, name string, r *Program, text string, d [2]*curun.Device) error {
	program, err := p.prepared(name)
	if err != nil {
		return err
	}
	code, err := compile(d[0], text, &r.Own)
	if err != nil {
		return err
	}
	if err := check(ctx, program, &harness.CUDA{Device: d[0], Code: code, Own: true}); err != nil {
		return err
	}
	for _, k := range r.Kernels {
		if k.Own, err = d[0].Function(0, k.Name); err != nil {
			return err
		}
	}
	return nil
}

// ours runs our PTX, which nobody stops.
func (p *pair) ours(ctx context.Context, name string, r *Program, text string, d [2]*curun.Device) ([]byte, error) {
	program, err := p.prepared(name)
	if err != nil {
		return nil, err
	}
	code, err := compile(d[0], text, &r.Ours)
	if err != nil {
		return nil, err
	}
	if err := check(ctx, program, &harness.CUDA{Device: d[0], Code: code}); err != nil {
		return nil, err
	}
	for _, k := range r.Kernels {
		if k.Ours, err = d[0].Function(0, k.Name); err != nil {
			return nil, err
		}
	}
	return code, nil
}

func random(name, what string) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name + "\x00" + what))
	return rand.New(rand.NewPCG(h.Sum64(), 5)) //nolint:gosec // not a secret: the same moves each time
}

// stopped runs our PTX again and again, with a flag that goes up at some time while
// a kernel runs, from process to process.
func (p *pair) stopped(ctx context.Context, name string, r *Program, code []byte, d [2]*curun.Device) error {
	source := random(name, "stopped")
	both := []harness.Device{
		&harness.CUDA{Device: d[0], Code: code, Early: early}, &harness.CUDA{Device: d[1], Code: code, Early: early},
	}
	// Two first runs that nobody stops tell how long the kernels take.
	for _, d := range both {
		program, err := p.prepared(name)
		if err != nil {
			return err
		}
		if err := check(ctx, program, d); err != nil {
			return err
		}
	}
	o := &r.Stopped
	for range tries {
		if ctx.Err() != nil {
			break
		}
		program, err := p.prepared(name)
		if err != nil {
			return err
		}
		path, err := harness.Move(ctx, program, source, both...)
		if err == nil {
			err = program.Check()
		}
		o.add(path)
		if err != nil {
			return fmt.Errorf("%w; path: %s", err, lastLegs(path))
		}
	}
	return nil
}

// moves runs our PTX twice, stopped at point after point, on one device after the
// other.
func (p *pair) moves(ctx context.Context, name string, o *Outcome, on ...harness.Device) error {
	source := random(name, "moves")
	for i := range 2 {
		program, err := p.prepared(name)
		if err != nil {
			return err
		}
		if i > 0 { // the other one begins
			on = append(on[1:], on[0])
		}
		path, err := harness.Move(ctx, program, source, on...)
		if err == nil {
			err = program.Check()
		}
		o.add(path)
		if errors.Is(err, harness.ErrNotOnGPU) {
			o.Log += err.Error() + "\n"
			continue
		}
		if err != nil {
			return fmt.Errorf("%w; path: %s", err, lastLegs(path))
		}
	}
	return nil
}

// lastLegs is the end of a path.
func lastLegs(p harness.Path) string {
	const most = 6
	text := strings.Join(p.Legs[max(0, len(p.Legs)-most):], ", ")
	return fmt.Sprintf("%d legs, the last: %.600s", len(p.Legs), text)
}
