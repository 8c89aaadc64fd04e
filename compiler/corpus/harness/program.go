// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Package harness runs the corpus on back ends: a program's memory and its state
// are moved from one device to the next, as a snapshot's are.
package harness

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/corpus"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/interp"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/lower"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/passes"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/pause"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ptx"
)

// Lower makes IR of PTX.
func Lower(text string) (*ir.Module, error) {
	parsed, err := ptx.Parse(text)
	if err != nil {
		return nil, err
	}
	return lower.Lower(parsed)
}

// Prepare makes PTX what back ends take, with changes as compiler.Load makes them.
func Prepare(text string, changes ...func(*ir.Module)) (*ir.Module, error) {
	m, err := Lower(text)
	if err != nil {
		return nil, err
	}
	if err := passes.Prepare(m); err != nil {
		return nil, err
	}
	for _, change := range changes {
		change(m)
	}
	return m, ir.Verify(m)
}

// Prepared makes a case a program that can be paused, at its place in a device's
// window, as back ends take it. text is its PTX; "": the corpus'.
func Prepared(c *corpus.Case, text string, window uint64, changes ...func(*ir.Module)) (*Program, error) {
	if text == "" {
		var err error
		if text, err = corpus.PTX(c.File); err != nil {
			return nil, err
		}
	}
	m, err := Prepare(text, changes...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.File, err)
	}
	p := &Program{Module: m, Text: text, Plans: map[*ir.Func]*pause.Plan{}}
	for _, f := range m.Funcs {
		if f.Kernel {
			p.Plans[f] = pause.New(m, f)
		}
	}
	return p.again(c, window)
}

// Again returns the program as it is before its first launch, in a window that
// may be another. It has the same code.
func (p *Program) Again(window uint64) (*Program, error) {
	return p.again(corpus.Get(p.Case.Name), window)
}

func (p *Program) again(c *corpus.Case, window uint64) (*Program, error) {
	next, end, err := New(c, p.Module, window+ProgramOffset)
	if err != nil {
		return nil, err
	}
	if end > window+stateOffset {
		return nil, fmt.Errorf("%s: its memory ends at %#x", c.Name, end)
	}
	next.Text, next.Plans = p.Text, p.Plans
	return next, nil
}

// Program is a case with its code and its memory, between launches or inside one.
type Program struct {
	Case   *corpus.Case
	Module *ir.Module
	// Text is the PTX that it was made of.
	Text string
	// Plans are the kernels' plans; without them nothing can be paused.
	Plans map[*ir.Func]*pause.Plan
	// Memory is what devices have at these addresses.
	Memory []Region
	// Vars are the addresses of the module's variables.
	Vars map[*ir.Var]uint64
	// vars is where the variables' part of Memory begins.
	vars uint64
	// Printed is what the launches have printed.
	Printed strings.Builder
}

// Region is a part of device memory.
type Region struct {
	Addr  uint64
	Bytes []byte
}

// New places a case's variables and buffers from base on, and returns the first
// address behind them.
func New(c *corpus.Case, m *ir.Module, base uint64) (*Program, uint64, error) {
	p := &Program{Case: c, Module: m, vars: base}
	var scratch interp.Memory
	var err error
	if p.Vars, err = scratch.Load(m, base); err != nil {
		return nil, 0, err
	}
	first, end := base, base
	for v, at := range p.Vars {
		end = max(end, at+uint64(max(v.Size, 1)))
	}
	vars := make([]byte, end-first)
	for v, at := range p.Vars {
		copy(vars[at-first:], scratch.At(at, int(v.Size)))
	}
	if len(vars) > 0 {
		p.Memory = append(p.Memory, Region{first, vars})
	}
	const page = 4096
	end = c.Place((end+page-1)/page*page + page)
	for _, b := range c.Buffers {
		if !b.Var {
			p.Memory = append(p.Memory, Region{b.Addr, append([]byte(nil), b.Init...)})
			continue
		}
		v := p.variable(b.Name)
		if v == nil || v.Size != int64(len(b.Want)) {
			return nil, 0, fmt.Errorf("%s: no variable %s of %d bytes", c.File, b.Name, len(b.Want))
		}
		b.Addr = p.Vars[v]
		if b.Init != nil {
			copy(p.at(b.Addr, len(b.Init)), b.Init)
		}
	}
	return p, end, nil
}

// isVars tells of the part of Memory that the variables are in.
func (p *Program) isVars(r Region) bool { return len(p.Vars) > 0 && r.Addr == p.vars }

// varTable has the addresses of the module's variables, which kernels have as
// "vars". It ends with a 0, so that it is never empty.
func (p *Program) varTable() []byte {
	var table []byte
	for _, v := range p.Module.Vars {
		table = binary.LittleEndian.AppendUint64(table, p.Vars[v])
	}
	return binary.LittleEndian.AppendUint64(table, 0)
}

func (p *Program) variable(name string) *ir.Var {
	for v := range p.Vars {
		if v.Name == name {
			return v
		}
	}
	return nil
}

func (p *Program) at(addr uint64, n int) []byte {
	for _, r := range p.Memory {
		if off := addr - r.Addr; off <= uint64(len(r.Bytes)) && uint64(n) <= uint64(len(r.Bytes))-off {
			return r.Bytes[off:][:n]
		}
	}
	return nil
}

func (p *Program) kernel(name string) *ir.Func {
	for _, f := range p.Module.Funcs {
		if f.Kernel && f.Name == name {
			return f
		}
	}
	return nil
}

// Check tells whether memory and output are as the case wants them in the end.
func (p *Program) Check() error {
	err := p.Case.Check(func(b *corpus.Buffer) ([]byte, error) {
		if bytes := p.at(b.Addr, len(b.Want)); bytes != nil {
			return bytes, nil
		}
		return nil, fmt.Errorf("no memory at %#x", b.Addr)
	})
	return errors.Join(err, p.Case.CheckOutput(p.Printed.String()))
}

// Device runs launches.
type Device interface {
	// Run begins or goes on with a launch. It returns when all blocks are done or,
	// if stop is not nil, have stopped wherever that random source lets them. The
	// program's memory and the launch's state are then as the device left them.
	Run(ctx context.Context, l *Launch, stop *rand.Rand) error
}

// Launch is a launch of a program, perhaps paused.
type Launch struct {
	*corpus.Launch
	Program *Program
	Kernel  *ir.Func
	Plan    *pause.Plan
	// State is as package pause describes it; nil if the program has no plans.
	State []byte
}

// Launch prepares the case's launch i.
func (p *Program) Launch(i int) (*Launch, error) {
	l, err := p.launch(i)
	if err != nil {
		return nil, err
	}
	if l.Plan != nil {
		// What nobody has saved may be anything.
		l.State = bytes.Repeat([]byte{0xdb}, int(l.Plan.StateBytes(int64(l.Blocks()), int64(l.Threads()), int64(l.Shared))))
		clear(l.State[:l.Plan.StatusBytes(int64(l.Blocks()))])
	}
	return l, nil
}

// LaunchOn is Launch for a state that lies on a device: here are its status words only.
func (p *Program) LaunchOn(i int) (*Launch, error) {
	l, err := p.launch(i)
	if err == nil {
		l.State = make([]byte, (4*int(l.Blocks())+15)&^15)
	}
	return l, err
}

func (p *Program) launch(i int) (*Launch, error) {
	l := &Launch{Launch: &p.Case.Launches[i], Program: p}
	if l.Kernel = p.kernel(l.Launch.Kernel); l.Kernel == nil {
		return nil, fmt.Errorf("%s has no kernel %s", p.Case.File, l.Launch.Kernel)
	}
	l.Plan = p.Plans[l.Kernel]
	return l, nil
}

// Blocks is the number of blocks.
func (l *Launch) Blocks() uint32 { return l.Grid[0] * l.Grid[1] * l.Grid[2] }

// Threads is the number of each block's threads.
func (l *Launch) Threads() uint32 { return l.Block[0] * l.Block[1] * l.Block[2] }

// Status returns a block's status word.
func (l *Launch) Status(block uint32) uint32 {
	s := l.State[4*block:]
	return uint32(s[0]) | uint32(s[1])<<8 | uint32(s[2])<<16 | uint32(s[3])<<24
}

// Done tells whether all blocks are.
func (l *Launch) Done() bool {
	for b := range l.Blocks() {
		if l.Status(b) != pause.Done {
			return false
		}
	}
	return true
}
