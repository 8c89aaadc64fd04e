// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package opencl_test

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/corpus/clrun"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/opencl"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/pause"
)

// TestLaunches: every block that is not done is run once, by the entry for its
// status, and those that wait for one another by one launch.
func TestLaunches(t *testing.T) {
	apart := &opencl.Kernel{Entry: "k", Resume: []opencl.Resume{{[]uint32{1}, "k__r1"}, {[]uint32{2}, "k__r2"}}}
	own := &opencl.Kernel{Entry: "k", Resume: []opencl.Resume{{[]uint32{pause.ThreadPoints}, "k__rt"}}}
	joint := &opencl.Kernel{Entry: "k", Resume: []opencl.Resume{{[]uint32{0, 1, 2}, "k__ra"}}}
	const done = pause.Done
	for _, c := range []struct {
		k      *opencl.Kernel
		status []uint32
		want   string
	}{
		{apart, []uint32{0, 0, 0}, "k [0 1 2]"},
		{apart, []uint32{2, 0, done, 1, 2}, "k__r1 [3], k__r2 [0 4], k [1]"},
		{apart, []uint32{done, done}, ""},
		{apart, nil, ""},
		{own, []uint32{0, pause.ThreadPoints, done}, "k__rt [1], k [0]"},
		{joint, []uint32{0, 0}, "k [0 1]"},
		{joint, []uint32{2, 0, done, 1, 2}, "k__ra [0 1 3 4]"},
		{joint, []uint32{done, 0}, "k__ra [1]"},
		{joint, []uint32{done}, ""},
	} {
		var got []string
		for _, p := range c.k.Launches(c.status) {
			got = append(got, fmt.Sprint(p.Entry, " ", p.Blocks))
		}
		if s := strings.Join(got, ", "); s != c.want {
			t.Errorf("%x: %s, want %s", c.status, s, c.want)
		}
	}
}

// TestTrapBeforeBarrier: a thread that traps on its own, with a barrier behind
// that and with pause points, ends its launch with the error and takes nothing
// along: not the device, and no other thread.
func TestTrapBeforeBarrier(t *testing.T) {
	m, plans := module(t, "checked")
	p := write(t, m, plans)
	golden(t, "checked", p.Text)
	k := kernelOf(t, p, "checked")
	if k.Mode != opencl.General || len(k.Plan.Points) != 1 {
		t.Errorf("mode %v, %d points: %s", k.Mode, len(k.Plan.Points), k.Plan.Reason)
	}
	d := openDevice(t)
	if log, err := d.Build(opencl.Options, p.Text); err != nil {
		t.Fatalf("%v\n%s", err, log)
	}
	l := &launch{kernel: "checked", grid: [3]uint32{2, 1, 1}, block: [3]uint32{48, 1, 1}, params: []uint64{48}, data: make([]byte, 4*96)}
	want, _ := onInterp(t, m, k.Plan, l, nil)
	got, _ := onDevice(t, d, m, k, k.Entry, l, nil, nil)
	differ(t, "no thread traps", got, want)

	trapped := *l
	trapped.params = []uint64{40} // threads 40 and on are one too many
	if word := runTrapped(t, d, k, &trapped); word[0] != opencl.TrapInstruction || word[1] > 1 || word[2] < 40 || word[2] >= 48 {
		t.Errorf("the error is %d: block %d, thread %d", word[0], word[1], word[2])
	}
	got, _ = onDevice(t, d, m, k, k.Entry, l, nil, nil)
	differ(t, "behind a launch that trapped", got, want)
}

// runTrapped runs a launch that is to trap, and returns the words that say where.
func runTrapped(t *testing.T, d *clrun.Device, k *opencl.Kernel, l *launch) [3]uint64 {
	t.Helper()
	le := binary.LittleEndian
	var h []byte
	for _, v := range []uint64{paramsAt, 0, 0, 0, varsAt, trapAt} {
		h = le.AppendUint64(h, v)
	}
	for _, v := range append(append(l.grid[:len(l.grid):len(l.grid)], l.block[:]...), l.dynamic, l.blocks()) {
		h = le.AppendUint32(h, v)
	}
	for at, data := range map[uint64][]byte{launchAt: h, paramsAt: l.paramBlock(), trapAt: make([]byte, 64), dataAt: l.data} {
		if err := d.Write(at, data); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.Run(clrun.Run{
		Entry: k.Entry, Launch: launchAt, LocalBytes: uint64(k.LocalBytes(l.threads(), 0)),
		Global: [3]uint64{uint64(l.blocks()) * uint64(l.block[0]), 1, 1}, Local: [3]uint64{uint64(l.block[0]), 1, 1},
	}); err != nil {
		t.Fatal(err)
	}
	b, err := d.Read(trapAt, 24)
	if err != nil {
		t.Fatal(err)
	}
	return [3]uint64{le.Uint64(b), le.Uint64(b[8:]), le.Uint64(b[16:])}
}
