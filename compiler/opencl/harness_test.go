// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package opencl_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/corpus/clrun"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/interp"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/opencl"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/pause"
)

// Where things are in the device's memory, and in the interpreter's.
const (
	base       = 0x2000_0000_0000
	launchAt   = base
	paramsAt   = base + 0x1000
	trapAt     = base + 0x2000
	flagAt     = base + 0x2100
	varsAt     = base + 0x2800
	listAt     = base + 0x4000
	stateAt    = base + 0x1_0000
	dataAt     = base + 0x80_0000
	dataSize   = 0x10_0000
	memorySize = 0x100_0000
)

var clrunProgram = sync.OnceValues(func() (string, error) {
	return clrun.Build(context.Background(), programDir)
})

// programDir is where the runner is built, for all tests.
var programDir string

// openDevice starts PoCL in a child process.
func openDevice(t *testing.T) *clrun.Device {
	t.Helper()
	program, err := clrunProgram()
	if err != nil {
		t.Fatal(err)
	}
	d, err := clrun.Start(context.WithoutCancel(t.Context()), clrun.Options{
		Program: program, Platform: "Portable Computing Language", Base: base, Size: memorySize, Timeout: 5 * time.Minute,
		Env: []string{"POCL_CACHE_DIR=" + t.TempDir()},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// launch is a kernel with what it is launched with. The parameters are the
// data's address, and what params says.
type launch struct {
	kernel      string
	grid, block [3]uint32
	dynamic     uint32
	params      []uint64
	data        []byte
	pause       func(block uint32, point int) bool // of the interpreter
	flag        uint32
	flagAfter   time.Duration
	printed     string // by the last run
}

func (l *launch) threads() int64 {
	return int64(l.block[0]) * int64(l.block[1]) * int64(l.block[2])
}

func (l *launch) blocks() uint32 { return l.grid[0] * l.grid[1] * l.grid[2] }

func (l *launch) paramBlock() []byte {
	b := binary.LittleEndian.AppendUint64(nil, dataAt)
	for _, p := range l.params {
		b = binary.LittleEndian.AppendUint64(b, p)
	}
	return b
}

// parse reads a module and plans its kernels, without points.
func parse(t *testing.T, text string) (*ir.Module, map[*ir.Func]*pause.Plan) {
	t.Helper()
	m, err := ir.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if err := ir.Verify(m); err != nil {
		t.Fatal(err)
	}
	plans := map[*ir.Func]*pause.Plan{}
	for _, f := range m.Funcs {
		p := &pause.Plan{Func: f, Class: pause.RunsToEnd, Shared: f.SharedLayout(m), Local: f.LocalLayout()}
		p.SharedBytes, p.LocalBytes = p.Shared.Size, p.Local.Size
		plans[f] = p
	}
	return m, plans
}

// write compiles a module.
func write(t *testing.T, m *ir.Module, plans map[*ir.Func]*pause.Plan) *opencl.Program {
	t.Helper()
	p, err := opencl.Module(m, plans)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func kernelOf(t *testing.T, p *opencl.Program, name string) *opencl.Kernel {
	t.Helper()
	for _, k := range p.Kernels {
		if k.Plan.Func.Name == name {
			if k.Entry == "" {
				t.Fatalf("%s: %s", name, k.Reason)
			}
			return k
		}
	}
	t.Fatalf("no kernel %s", name)
	return nil
}

// varAddresses places the module's variables behind their table.
func varAddresses(m *ir.Module) (map[*ir.Var]uint64, []byte) {
	at, table := map[*ir.Var]uint64{}, []byte{}
	next := uint64(varsAt + 0x400)
	for _, v := range m.Vars {
		var a uint64
		if v.Space == ir.Global || v.Space == ir.Const {
			next = uint64(ir.AlignUp(int64(next), 16))
			a = next
			at[v] = a
			next += uint64(v.Size)
		}
		table = binary.LittleEndian.AppendUint64(table, a)
	}
	return at, table
}

// onDevice runs an entry of a built program over blocks (nil: all) and returns the
// data, and the state if there is one.
func onDevice(t *testing.T, d *clrun.Device, m *ir.Module, k *opencl.Kernel, entry string, l *launch, state []byte, blocks []uint32) (data, after []byte) {
	t.Helper()
	le := binary.LittleEndian
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	list, groups := uint64(0), l.blocks()
	if blocks != nil {
		list, groups = listAt, uint32(len(blocks))
		var b []byte
		for _, i := range blocks {
			b = le.AppendUint32(b, i)
		}
		do(d.Write(listAt, b))
	}
	at, table := varAddresses(m)
	do(d.Write(varsAt, append(table, 0)))
	for _, v := range m.Vars {
		if a := at[v]; a != 0 && v.Size > 0 {
			init := v.Init
			if init == nil {
				init = make([]byte, v.Size)
			}
			do(d.Write(a, init))
		}
	}
	h := le.AppendUint64(nil, paramsAt)
	s := uint64(0)
	if state != nil {
		s = stateAt
		do(d.Write(stateAt, state))
	}
	for _, v := range []uint64{s, list, flagAt, varsAt, trapAt} {
		h = le.AppendUint64(h, v)
	}
	for _, v := range append(append(l.grid[:len(l.grid):len(l.grid)], l.block[:]...), l.dynamic, groups) {
		h = le.AppendUint32(h, v)
	}
	do(d.Write(launchAt, h))
	do(d.Write(paramsAt, l.paramBlock()))
	do(d.Write(trapAt, make([]byte, 64)))
	do(d.Write(flagAt, le.AppendUint32(nil, l.flag)))
	do(d.Write(dataAt, l.data))
	run := clrun.Run{
		Entry: entry, Launch: launchAt, LocalBytes: uint64(k.LocalBytes(l.threads(), int64(l.dynamic))),
		Global: [3]uint64{uint64(groups) * uint64(l.block[0]), uint64(l.block[1]), uint64(l.block[2])},
		Local:  [3]uint64{uint64(l.block[0]), uint64(l.block[1]), uint64(l.block[2])},
	}
	if l.flagAfter > 0 {
		run.Flag, run.FlagAfter = flagAt, l.flagAfter
	}
	var err error
	l.printed, err = d.Run(run)
	do(err)
	trap, err := d.Read(trapAt, 24)
	do(err)
	if !bytes.Equal(trap, make([]byte, 24)) {
		t.Fatalf("%s: trap %x", entry, trap)
	}
	data, err = d.Read(dataAt, uint64(len(l.data)))
	do(err)
	if state != nil {
		after, err = d.Read(stateAt, uint64(len(state)))
		do(err)
	}
	return data, after
}

// onInterp does the same in the interpreter.
func onInterp(t *testing.T, m *ir.Module, plan *pause.Plan, l *launch, state []byte) (data, after []byte) {
	t.Helper()
	mem := &interp.Memory{}
	data = bytes.Clone(l.data)
	if err := mem.Map(dataAt, data); err != nil {
		t.Fatal(err)
	}
	at, _ := varAddresses(m)
	for v, a := range at {
		init := make([]byte, v.Size)
		copy(init, v.Init)
		if err := mem.Map(a, init); err != nil {
			t.Fatal(err)
		}
	}
	f := m.Func(plan.Func.Name)
	var out strings.Builder
	run := &interp.Launch{
		Out: &out, Module: m, Kernel: f, Grid: l.grid, Block: l.block, DynamicShared: l.dynamic,
		Params: l.paramBlock(), Vars: at, Memory: mem, Pause: l.pause,
	}
	if state != nil {
		after = bytes.Clone(state)
		run.Plan, run.State = plan, after
	}
	if err := interp.Run(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	l.printed = out.String()
	return data, after
}

// differ tells where two results differ, as 32-bit words.
func differ(t *testing.T, what string, got, want []byte) {
	t.Helper()
	n := 0
	for i := 0; i+4 <= len(want); i += 4 {
		if g, w := binary.LittleEndian.Uint32(got[i:]), binary.LittleEndian.Uint32(want[i:]); g != w {
			if n < 10 {
				t.Errorf("%s: word %d is %#x, want %#x", what, i/4, g, w)
			}
			n++
		}
	}
	if n > 10 {
		t.Errorf("%s: %d words differ", what, n)
	}
}

func optionsFor() string { return opencl.Options }
