// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/corpus"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/corpus/clrun"
)

// base is where device memory begins, the same on each device.
const base = 0x2000_0000_0000

// lowered returns a case's program as it comes from PTX.
func lowered(t *testing.T, c *corpus.Case) *Program {
	t.Helper()
	text, err := corpus.PTX(c.File)
	if err != nil {
		t.Fatal(err)
	}
	m, err := Lower(text)
	if err != nil {
		t.Fatal(err)
	}
	p, _, err := New(c, m, base+ProgramOffset)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// prepared returns a case's program as back ends take it, with its plans.
func prepared(t *testing.T, c *corpus.Case) *Program {
	t.Helper()
	p, err := Prepared(c, "", base)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// runAll runs all launches of a program on a device, and checks what they did.
func runAll(t *testing.T, p *Program, d Device) {
	t.Helper()
	for i := range p.Case.Launches {
		l, err := p.Launch(i)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Run(t.Context(), l, nil); errors.Is(err, ErrNotWritten) {
			t.Skip(err)
		} else if err != nil {
			t.Fatalf("launch %d, %s: %v", i, l.Kernel.Name, err)
		}
	}
	if err := p.Check(); err != nil {
		t.Error(err)
	}
}

// TestInterpreter: the interpreter does what plain Go does, with the program as it
// comes from PTX.
func TestInterpreter(t *testing.T) {
	for _, c := range corpus.All() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			runAll(t, lowered(t, c), Interpreter{})
		})
	}
}

// TestPrepared: the passes don't change what a program does, nor do plans.
func TestPrepared(t *testing.T) {
	for _, c := range corpus.All() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			runAll(t, prepared(t, c), Interpreter{})
		})
	}
}

// TestNVPTX: so does the PTX that can be paused, if nobody does.
func TestNVPTX(t *testing.T) {
	for _, c := range corpus.All() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			runAll(t, prepared(t, c), &Interpreted{})
		})
	}
}

// devices hands out OpenCL devices, so many at a time.
type devices chan *OpenCL

var pocl = make(devices, 2)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "harness")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	program, err := clrun.Build(context.Background(), dir)
	if err != nil {
		panic(err)
	}
	options = clrun.Options{
		Program: program, Platform: "Portable Computing Language", Base: base, Size: WindowSize, Timeout: 3 * time.Minute,
		// PoCL 3.1's default way to make loops of work items ("loopvec") calls
		// itself without end for some kernels with irregular control flow.
		Env: []string{"POCL_CACHE_DIR=" + dir, "POCL_WORK_GROUP_METHOD=loops"},
	}
	for range cap(pocl) {
		pocl <- &OpenCL{}
	}
	code := m.Run()
	for range cap(pocl) {
		if d := (<-pocl).Device; d != nil {
			_ = d.Close()
		}
	}
	return code
}

var options clrun.Options

// take gives a test a device until its end. A device that failed is not given to
// another.
func (d devices) take(t *testing.T) *OpenCL {
	t.Helper()
	o := <-d
	t.Cleanup(func() {
		if t.Failed() && o.Device != nil {
			_ = o.Device.Close()
			o = &OpenCL{}
		}
		d <- o
	})
	if o.Device == nil {
		device, err := clrun.Start(context.Background(), options)
		if err != nil {
			t.Fatal(err)
		}
		o.Device = device
	}
	return o
}

// TestPoCL: OpenCL C on the CPU does what plain Go does.
func TestPoCL(t *testing.T) {
	for _, c := range corpus.All() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			runAll(t, prepared(t, c), pocl.take(t))
		})
	}
}

// TestPause: stopped at random points many times, and moved each time, a program
// does what it does without.
func TestPause(t *testing.T) {
	for _, c := range corpus.All() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			o, paused := pocl.take(t), map[string]bool{}
			for seed := range uint64(2) {
				p := prepared(t, corpus.Get(c.Name))
				path, err := Move(t.Context(), p, rand.New(rand.NewPCG(seed, 7)), Interpreter{First: seed == 0}, o, &Interpreted{})
				if errors.Is(err, ErrNotWritten) {
					t.Skip(err)
				}
				if err == nil {
					err = p.Check()
				}
				if err != nil {
					t.Errorf("%v; path: %s", err, strings.Join(path.Legs, ", "))
				}
				for f := range path.Inside {
					paused[f] = true
				}
				if seed == 0 {
					continue
				}
				for f, plan := range p.Plans {
					if pausable := len(plan.Points) > 0; paused[f.Name] != pausable {
						t.Errorf("%s (%v): paused inside: %v", f.Name, plan.Class, paused[f.Name])
					}
				}
			}
		})
	}
}
