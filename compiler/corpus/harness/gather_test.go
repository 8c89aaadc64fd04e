// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/corpus"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/pause"
)

// gathered counts the threads that have stopped before each barrier, by where they are: 0
// and 1 at the barrier, 2 and more in a loop (passes.Gather).
func gathered(l *Launch) map[string]int {
	where, threads := map[string]int{}, int64(l.Threads())
	for b := range l.Blocks() {
		k := l.Status(b)
		if k == 0 || int(k) > len(l.Plan.Points) || len(l.Plan.Points[k-1].Polls) == 0 {
			continue
		}
		values := l.Plan.StatusBytes(int64(l.Blocks())) + int64(b)*l.Plan.AreaBytes(threads, int64(l.Shared)) + l.Plan.ValuesOffset(int64(l.Shared))
		for _, v := range l.Plan.Points[k-1].Values {
			if name := l.Plan.Func.Regs[v.Reg].Name; name != "at" && !strings.HasPrefix(name, "at.") {
				continue
			}
			inside := 0
			for t := range threads {
				at := binary.LittleEndian.Uint32(l.State[values+v.Offset*threads+4*t:])
				where[fmt.Sprintf("%s %d at %d", l.Kernel.Name, k, max(at, 1))]++
				if at > 1 {
					inside++
				}
			}
			if inside > 0 && inside < int(threads) {
				where["both"]++
			}
		}
	}
	return where
}

// loops are all places where gathered can find threads of a program.
func loops(p *Program) []string {
	var all []string
	for f, plan := range p.Plans {
		for i := range plan.Points {
			for n := range plan.Points[i].Polls {
				all = append(all, fmt.Sprintf("%s %d at %d", f.Name, i+1, n+2))
			}
		}
	}
	return all
}

// gather runs a program, in which the first block that comes so far stops at the nth
// place where it can, and goes on with each launch on other devices. It returns how many places there
// are, and where threads had stopped.
func gather(t *testing.T, p *Program, nth int, on ...Device) (places int, where map[string]int) {
	t.Helper()
	where = map[string]int{}
	for i := range p.Case.Launches {
		l, err := p.Launch(i)
		if err != nil {
			t.Fatal(err)
		}
		first := Interpreter{Pause: func(_ uint32, point int) bool {
			if point > 0 {
				places++
			}
			return point > 0 && places == nth
		}}
		if l.Plan == nil || len(l.Plan.Points) == 0 {
			first = Interpreter{}
		}
		if err := first.Run(t.Context(), l, nil); err != nil {
			t.Fatal(err)
		}
		for k, n := range gathered(l) {
			where[k] += n
		}
		for n := 0; !l.Done(); n++ {
			if n > len(on) {
				t.Fatalf("launch %d does not end", i)
			}
			if err := on[n%len(on)].Run(t.Context(), l, nil); err != nil {
				t.Fatalf("launch %d, stopped at the place %d: %v", i, nth, err)
			}
		}
	}
	if err := p.Check(); err != nil {
		t.Errorf("stopped at the place %d: %v", nth, err)
	}
	return places, where
}

// leaving returns a case's program of which threads leave loops between barriers.
func leaving(t *testing.T, c *corpus.Case) *Program {
	t.Helper()
	p, err := Prepared(c, "", base, pause.Prepare)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestGather: blocks stop while threads are in loops between barriers, and go on in the
// interpreter and as our PTX: all programs of the corpus that have such loops, at some of
// the places where they can stop.
func TestGather(t *testing.T) {
	const stops = 6
	var programs, inside atomic.Int64
	t.Run("corpus", func(t *testing.T) {
		for _, c := range corpus.All() {
			program := leaving(t, c)
			if len(loops(program)) == 0 {
				continue
			}
			t.Run(c.Name, func(t *testing.T) {
				t.Parallel()
				places, _ := gather(t, program, 0)
				in := 0
				for n := range stops {
					p := leaving(t, corpus.Get(c.Name))
					_, where := gather(t, p, 1+places*n/stops, []Device{Interpreter{}, &Interpreted{}}[n%2])
					for _, at := range loops(p) {
						in += where[at]
					}
				}
				if in > 0 {
					inside.Add(1)
				}
				programs.Add(1)
			})
		}
	})
	if programs.Load() < 15 || inside.Load() < programs.Load()/2 {
		t.Errorf("of %d programs with loops between barriers, %d stopped in these", programs.Load(), inside.Load())
	}
}

// TestGatherUneven: threads of a block stop in each of a program's loops, while others
// wait at the barrier, and the block goes on on each back end, which may stop it again.
func TestGatherUneven(t *testing.T) {
	program := leaving(t, corpus.Get("uneven"))
	places, _ := gather(t, program, 0)
	missing := map[string]bool{"both": true}
	for _, at := range loops(program) {
		missing[at] = true
	}
	o := pocl.take(t)
	for nth := 1; nth <= places && len(missing) > 0; nth += 1 + places/100 {
		on := []Device{[]Device{Interpreter{}, &Interpreted{}}[nth%2]}
		p := leaving(t, corpus.Get("uneven"))
		if nth%10 == 0 {
			on[0] = o
		}
		_, where := gather(t, p, nth, on...)
		for k := range where {
			delete(missing, k)
		}
	}
	if len(missing) > 0 {
		t.Errorf("nobody stopped in %q", slices.Sorted(maps.Keys(missing)))
	}
}

// TestGatherStatus: a block that stops in a loop has the status of the barrier behind it.
func TestGatherStatus(t *testing.T) {
	p := leaving(t, corpus.Get("uneven"))
	l, err := p.Launch(0)
	if err != nil {
		t.Fatal(err)
	}
	stop := Interpreter{Pause: func(block uint32, point int) bool { return block == 1 && point == 2 }}
	if err := stop.Run(t.Context(), l, nil); err != nil {
		t.Fatal(err)
	}
	if l.Status(0) != pause.Done || l.Status(1) != 2 {
		t.Errorf("statuses %x and %x", l.Status(0), l.Status(1))
	}
}
