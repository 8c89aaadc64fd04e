// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package curun

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/corpus/child"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/interp"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/lower"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ptx"
)

// Rehearsal is the name of the device that Rehearse is.
const Rehearsal = "the interpreter, no GPU"

// Rehearse answers requests as child/curun.c does, and runs kernels in the
// interpreter: for tests of everything but the driver. Times are of no meaning.
func Rehearse(in io.Reader, out io.Writer) error {
	r := &rehearsal{modules: map[uint64]*loaded{}, next: 0x3000_0000_0000}
	return child.Serve(in, out, r.answer)
}

// maxSteps bounds a kernel's instructions.
const maxSteps = 1 << 28

type rehearsal struct {
	base    uint64
	window  []byte
	modules map[uint64]*loaded
	next    uint64 // where the next module's variables go
	memory  interp.Memory
	looked  func() // at each access to the window
}

type loaded struct {
	module *ir.Module
	vars   map[*ir.Var]uint64
}

func (r *rehearsal) answer(kind uint32, p []byte) ([]byte, error) {
	u64 := func(i int) uint64 { return binary.NativeEndian.Uint64(p[8*i:]) }
	switch kind {
	case reqOpen:
		r.base, r.window = u64(0), make([]byte, u64(1))
		err := r.memory.Watch(r.base, r.window, func() {
			if r.looked != nil {
				r.looked()
			}
		})
		return append(child.U64s(r.base), "name "+Rehearsal+"\ncuda 0\nsm 90\nmultiprocessors 1\n"...), err
	case reqCompile:
		if _, err := parse(string(p)); err != nil {
			return nil, err
		}
		return append(child.U64s(uint64(len(p))), p...), nil
	case reqLoad:
		return nil, r.load(u64(0), string(p[8:]))
	case reqSymbol:
		m := r.modules[u64(0)]
		for v, at := range m.vars {
			if v.Name == string(p[8:]) {
				return child.U64s(at, uint64(v.Size)), nil
			}
		}
		return nil, errors.New("no variable " + string(p[8:]))
	case reqFunction:
		if r.modules[u64(0)].module.Func(string(p[8:])) == nil {
			return nil, errors.New("no function " + string(p[8:]))
		}
		return make([]byte, 64), nil
	case reqWrite:
		to, err := r.at(u64(0), uint64(len(p)-8))
		copy(to, p[8:])
		return nil, err
	case reqRead:
		from, err := r.at(u64(0), u64(1))
		return slices.Clone(from), err
	case reqFill:
		to, err := r.at(u64(0), u64(1))
		for i := range to {
			to[i] = p[16]
		}
		return nil, err
	case reqRun:
		printed, done, err := r.run(p)
		return append(done, printed...), err
	case reqBench:
		return r.bench(p)
	}
	return nil, fmt.Errorf("no request %d", kind)
}

func parse(text string) (*ir.Module, error) {
	parsed, err := ptx.Parse(text)
	if err != nil {
		return nil, err
	}
	return lower.Lower(parsed)
}

func (r *rehearsal) load(slot uint64, text string) error {
	m, err := parse(text)
	if err != nil {
		return err
	}
	vars, err := r.memory.Load(m, r.next)
	r.next += 1 << 24
	r.modules[slot] = &loaded{m, vars}
	return err
}

func (r *rehearsal) at(addr, n uint64) ([]byte, error) {
	if b := r.memory.At(addr, int(n)); b != nil || n == 0 {
		return b, nil
	}
	return nil, fmt.Errorf("no %d bytes at %#x", n, addr)
}

func (r *rehearsal) run(p []byte) (printed string, times []byte, err error) {
	var head runHead
	n, err := binary.Decode(p, binary.NativeEndian, &head)
	if err != nil {
		return "", nil, err
	}
	params, name := p[n:][:head.Params], string(p[n+int(head.Params):])
	m := r.modules[head.Slot]
	if m == nil || m.module.Func(name) == nil {
		return "", nil, errors.New("no kernel " + name)
	}
	var text bytes.Buffer
	start, sent := time.Now(), time.Duration(0)
	if head.Flag != 0 {
		flag, err := r.at(head.Flag, 4)
		if err != nil {
			return "", nil, err
		}
		looks := max(1, head.After/1000)
		r.looked = func() {
			if looks--; looks == 0 {
				flag[0], sent = 1, time.Since(start)
			}
		}
	}
	err = interp.Run(context.Background(), &interp.Launch{
		Module: m.module, Kernel: m.module.Func(name), Grid: head.Grid, Block: head.Block, DynamicShared: head.Shared,
		Params: params, Vars: m.vars, Memory: &r.memory, Out: &text, MaxSteps: maxSteps,
	})
	r.looked = nil
	return text.String(), child.U64s(0, uint64(sent), uint64(sent), uint64(time.Since(start))), err
}

func (r *rehearsal) bench(p []byte) ([]byte, error) {
	rounds, n := binary.NativeEndian.Uint64(p), binary.NativeEndian.Uint64(p[8:])
	var all [][]byte
	for p = p[16:]; len(p) > 0; {
		length := binary.NativeEndian.Uint64(p)
		all = append(all, p[8:][:length])
		p = p[8+length:]
	}
	var ms []float32
	for i := range rounds * n {
		start := time.Now()
		if _, _, err := r.run(all[i%n]); err != nil {
			return nil, err
		}
		ms = append(ms, float32(time.Since(start).Seconds()*1000))
	}
	return binary.Append(nil, binary.NativeEndian, ms)
}
