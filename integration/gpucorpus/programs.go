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

const (
	// tries is how often a program is run to be stopped at any time, and triesTime
	// for how long.
	tries     = 40
	triesTime = 3 * time.Second
	// early is how much longer a flag takes to the device than a launch, at most.
	early = 6 * time.Microsecond
)

// program does on the GPU all there is to do with one program. text is its PTX;
// "": the corpus'.
func (p *pair) program(ctx context.Context, c *corpus.Case, text string) *Program {
	r := &Program{Name: c.Name, File: c.File}
	first, err := harness.Prepared(c, text, p.s.report.Base)
	if err != nil {
		r.Ours.Error = err.Error()
		return r
	}
	for _, f := range first.Module.Funcs {
		plan := first.Plans[f]
		if plan == nil {
			continue
		}
		k := &Kernel{Name: f.Name, Class: plan.Class.String(), Points: len(plan.Points)}
		if err := nvptx.Pausable(first.Module, plan); err != nil {
			k.Refused = err.Error()
		}
		r.Kernels = append(r.Kernels, k)
	}
	ours, err1 := harness.NVPTX(first, nvptx.Checks{})
	steps, err2 := harness.NVPTX(first, stepping)
	if err := errors.Join(err1, err2); err != nil {
		r.Ours.Error = err.Error()
		return r
	}
	r.Bytes = len(ours)
	w := &way{pair: p, first: first, result: r}
	w.test(ctx, &r.Own, func(d [2]*curun.Device) error {
		_, err := w.whole(ctx, &r.Own, first.Text, &harness.CUDA{Device: d[0], Own: true}, func(k *Kernel) *curun.Function { return &k.Own })
		return err
	})
	var code []byte
	w.test(ctx, &r.Ours, func(d [2]*curun.Device) (err error) {
		code, err = w.whole(ctx, &r.Ours, ours, &harness.CUDA{Device: d[0]}, func(k *Kernel) *curun.Function { return &k.Ours })
		return err
	})
	if !pausable(first) {
		r.Stopped.NotRun, r.Stepped.NotRun, r.Moved.NotRun = notPausable, notPausable, notPausable
		return r
	}
	if code != nil {
		w.test(ctx, &r.Stopped, func(d [2]*curun.Device) error { return w.stopped(ctx, code, d) })
	}
	w.test(ctx, &r.Stepped, func(d [2]*curun.Device) (err error) {
		if w.steps, err = compile(d[0], steps, &r.Stepped); err != nil {
			return err
		}
		return w.moves(ctx, &r.Stepped, p.s.report.Base, w.onBoth(d)...)
	})
	if w.steps == nil {
		return r
	}
	w.test(ctx, &r.Moved, func(d [2]*curun.Device) error {
		both := w.onBoth(d)
		return w.moves(ctx, &r.Moved, p.s.report.Base, harness.Interpreter{First: true}, both[0], harness.Interpreter{First: true}, both[1])
	})
	return r
}

// pausable tells of programs with a kernel that is paused on NVIDIA's devices.
func pausable(p *harness.Program) bool {
	for _, plan := range p.Plans {
		if nvptx.Pausable(p.Module, plan) == nil {
			return true
		}
	}
	return false
}

// way is a program on its way.
type way struct {
	*pair
	first  *harness.Program
	result *Program
	steps  []byte // the code that is stopped at each point
}

const notPausable = "no kernel of it is paused on NVIDIA's devices"

func (w *way) onBoth(d [2]*curun.Device) []harness.Device {
	return []harness.Device{&harness.CUDA{Device: d[0], Code: w.steps, Up: true}, &harness.CUDA{Device: d[1], Code: w.steps, Up: true}}
}

// test runs one test, whose error is its outcome's. Processes in which something
// went wrong are given up.
func (w *way) test(ctx context.Context, o *Outcome, do func([2]*curun.Device) error) {
	if ctx.Err() != nil {
		o.NotRun = noTime
		return
	}
	d, err := w.take(ctx)
	start := time.Now()
	if err == nil {
		err = do(d)
	}
	o.end(start, err)
	if err != nil {
		w.drop()
	}
}

const noTime = "no time was left"

// end says what became of a test.
func (o *Outcome) end(start time.Time, err error) {
	o.Seconds = time.Since(start).Seconds()
	if o.Passed = err == nil; err != nil {
		o.Error = err.Error()
	}
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

// whole compiles and runs a program's PTX, which nobody stops.
func (w *way) whole(ctx context.Context, o *Outcome, text string, d *harness.CUDA, function func(*Kernel) *curun.Function) ([]byte, error) {
	program, err := w.first.Again(w.s.report.Base)
	if err != nil {
		return nil, err
	}
	if d.Code, err = compile(d.Device, text, o); err != nil {
		return nil, err
	}
	if err := check(ctx, program, d); err != nil {
		return nil, err
	}
	for _, k := range w.result.Kernels {
		if *function(k), err = d.Device.Function(0, k.Name); err != nil {
			return nil, err
		}
	}
	return d.Code, nil
}

func random(name, what string) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name + "\x00" + what))
	return rand.New(rand.NewPCG(h.Sum64(), 5))
}

// stopped runs our PTX again and again, with a flag that goes up at some time while
// a kernel runs, from process to process.
func (w *way) stopped(ctx context.Context, code []byte, d [2]*curun.Device) error {
	source := random(w.result.Name, "stopped")
	both := []harness.Device{
		&harness.CUDA{Device: d[0], Code: code, Early: early}, &harness.CUDA{Device: d[1], Code: code, Early: early},
	}
	// Two first runs that nobody stops tell how long the kernels take.
	for _, d := range both {
		program, err := w.first.Again(w.s.report.Base)
		if err == nil {
			err = check(ctx, program, d)
		}
		if err != nil {
			return err
		}
	}
	begun, most := time.Now(), tries
	if w.s.rehearse {
		most = 2
	}
	for i := 0; i < most && time.Since(begun) < triesTime; i++ {
		if err := w.move(ctx, &w.result.Stopped, w.s.report.Base, source, both...); err != nil || ctx.Err() != nil {
			return err
		}
	}
	return nil
}

// move runs a program once, stopped at random.
func (w *way) move(ctx context.Context, o *Outcome, window uint64, source *rand.Rand, on ...harness.Device) error {
	program, err := w.first.Again(window)
	if err != nil {
		return err
	}
	path, err := harness.Move(ctx, program, source, on...)
	if err == nil {
		err = program.Check()
	}
	o.add(path)
	if err != nil {
		return fmt.Errorf("%w; %s", err, lastLegs(path))
	}
	return nil
}

// moves runs our PTX twice, stopped at point after point, on one device after the
// other.
func (w *way) moves(ctx context.Context, o *Outcome, window uint64, on ...harness.Device) error {
	source := random(w.result.Name, "moves")
	for i := range 2 {
		if i > 0 { // the other one begins
			on = append(on[1:], on[0])
		}
		err := w.move(ctx, o, window, source, on...)
		switch {
		case errors.Is(err, harness.ErrNotOnGPU): // another kernel of it, begun elsewhere
			o.Log += err.Error() + "\n"
		case err != nil:
			return err
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
