// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package opencl_test

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/corpus/clrun"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/opencl"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/pause"
)

var pausable = []struct {
	name string
	mode opencl.Mode
	launch
}{
	{"reduce", opencl.Natural, launch{grid: [3]uint32{6, 1, 1}, block: [3]uint32{64, 1, 1}, dynamic: 40, params: []uint64{6}, data: randomWords(6*64, 0)}},
	{"phases", opencl.General, launch{grid: [3]uint32{3, 1, 1}, block: [3]uint32{64, 1, 1}, params: []uint64{12}, data: randomWords(3*64, 0)}},
	{"collatz", opencl.Natural, launch{grid: [3]uint32{4, 1, 1}, block: [3]uint32{48, 1, 1}, params: []uint64{20}, data: make([]byte, 8*4*48)}},
	{"relay", opencl.Natural, launch{grid: [3]uint32{4, 1, 1}, block: [3]uint32{40, 1, 1}, params: []uint64{6}, data: make([]byte, 256+4*4*40)}},
}

// TestPause stops launches at random points, in turn on PoCL and in the
// interpreter, each of which goes on from the other's state. A device whose flag
// is set from the start brings each block to its next point; PoCL's memory is
// written anew each time.
func TestPause(t *testing.T) { pauseAll(t, true) }

// TestPauseLarge does the same with one entry for all points of a kernel.
func TestPauseLarge(t *testing.T) {
	opencl.AllAreLarge(t)
	pauseAll(t, false)
}

func pauseAll(t *testing.T, goldens bool) {
	t.Helper()
	d := openDevice(t)
	for i := range pausable {
		c := &pausable[i]
		t.Run(c.name, func(t *testing.T) {
			m, plans := module(t, c.name)
			p := write(t, m, plans)
			if goldens {
				golden(t, c.name, p.Text)
			}
			k := kernelOf(t, p, c.name)
			if k.Mode != c.mode {
				t.Errorf("mode %v: %s", k.Mode, k.Reason)
			}
			if len(k.Resume) == 0 {
				t.Fatalf("nothing resumes it: %v, %s", k.Plan.Class, k.Plan.Reason)
			}
			if one := len(k.Resume) == 1 && len(k.Resume[0].Statuses) > 1; !goldens && k.Plan.Class == pause.BarrierPausable && !one {
				t.Errorf("it is resumed by %v", k.Resume)
			}
			if log, err := d.Build(opencl.Options, p.Text); err != nil {
				t.Fatalf("%v\n%s", err, log)
			}
			want, _ := onInterp(t, m, k.Plan, &c.launch, nil)
			for seed := range uint64(3) {
				j := &journey{t: t, d: d, m: m, k: k, l: c.launch, r: rand.New(rand.NewPCG(seed, 3))}
				j.run()
				differ(t, c.name, j.l.data, want)
				t.Logf("%d times stopped on PoCL, %d in the interpreter", j.device, j.interp)
				if j.device < 3 || j.interp < 3 {
					t.Errorf("it hardly stopped: %d times on PoCL, %d in the interpreter", j.device, j.interp)
				}
			}
		})
	}
}

// journey is a launch that moves.
type journey struct {
	t              *testing.T
	d              *clrun.Device
	m              *ir.Module
	k              *opencl.Kernel
	l              launch
	r              *rand.Rand
	state          []byte
	device, interp int
}

func (j *journey) run() {
	n := int64(j.l.blocks())
	j.state = make([]byte, j.k.Plan.StateBytes(n, j.l.threads(), int64(j.l.dynamic)))
	for step := 0; !j.done(); step++ {
		if step > 200 {
			j.t.Fatal("it does not end")
		}
		if j.r.IntN(2) == 0 || step > 40 && step%2 == 0 {
			j.onInterp()
		} else {
			j.onDevice(step > 60)
		}
	}
}

func (j *journey) status(block int) uint32 { return binary.LittleEndian.Uint32(j.state[4*block:]) }

func (j *journey) done() bool {
	for b := range int(j.l.blocks()) {
		if j.status(b) != pause.Done {
			return false
		}
	}
	return true
}

func (j *journey) onInterp() {
	l := j.l
	chance := 2 + j.r.IntN(6)
	stopped := false
	l.pause = func(uint32, int) bool {
		stop := j.r.IntN(chance) == 0
		stopped = stopped || stop
		return stop
	}
	j.l.data, j.state = onInterp(j.t, j.m, j.k.Plan, &l, j.state)
	if stopped {
		j.interp++
	}
}

// onDevice runs the blocks of each status: to the next point, or with the flag not
// set to the end.
func (j *journey) onDevice(toEnd bool) {
	var status []uint32
	for b := range int(j.l.blocks()) {
		status = append(status, j.status(b))
	}
	for _, part := range j.k.Launches(status) {
		l := j.l
		if !toEnd && (part.Entry != j.k.Entry || j.r.IntN(2) == 0) {
			l.flag = 1
		}
		j.l.data, j.state = onDevice(j.t, j.d, j.m, j.k, part.Entry, &l, j.state, part.Blocks)
		for _, b := range part.Blocks {
			if s := j.status(int(b)); s != pause.Done && s != pause.NotStarted {
				j.device++
				break
			}
		}
	}
}
