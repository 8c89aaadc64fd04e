// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Package pause decides where a kernel can stop and be resumed, and what of it
// is saved there: the same on every device.
//
// It has a kernel's class with its reason, its pause points, and the layout of
// the state. How a kernel stops is each back end's part. The package knows no
// target language. It changes programs in one way: Prepare.
package pause

import (
	"slices"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
)

// Class is how a kernel can be paused.
type Class uint8

// The classes.
const (
	// BarrierPausable kernels stop at barriers that all threads of a block reach
	// together.
	BarrierPausable Class = iota
	// BackEdgePausable kernels have no barrier: each thread stops at the end of a
	// round of a loop.
	BackEdgePausable
	// RunsToEnd is for kernels whose blocks, once begun, run to their end; a
	// pause waits for them. Blocks that have not begun do not start.
	RunsToEnd
	// NVIDIAOnly kernels use what only NVIDIA's devices have. They run there as
	// they are, to their end.
	NVIDIAOnly
)

var classNames = [...]string{"barrier-pausable", "back-edge-pausable", "runs-to-end", "nvidia-only"}

func (c Class) String() string { return classNames[c] }

// Kind is what a point is at.
type Kind uint8

// The kinds.
const (
	Barrier Kind = iota
	BackEdge
)

var kindNames = [...]string{"barrier", "back-edge"}

func (k Kind) String() string { return kindNames[k] }

// The words of a block's status. Others are the number of the point at which
// its threads are paused: Points[i] has number i+1.
const (
	NotStarted uint32 = 0
	// ThreadPoints tells that each thread has a point of its own (BackEdge). It is
	// the first value of each thread then.
	ThreadPoints uint32 = 0xfffffffe
	Done         uint32 = 0xffffffff
	// ThreadEnded stands where a thread's own point would, of one that has ended.
	ThreadEnded uint32 = 0xffffffff
)

// Point is where a kernel can stop.
type Point struct {
	Kind Kind
	// Barrier: execution goes on after Block.Instrs[Index], which is a Bar.
	// BackEdge: at the beginning of Block, a loop's header; Index is 0.
	Block *ir.Block
	Index int
	// From is the block at the back-edge's other end.
	From *ir.Block
	// Polls are the Poll instructions, at the ends of loops' rounds, from which threads
	// come to this barrier before their time, to stop there (Prepare). The barrier
	// reduces then whether some have.
	Polls []*ir.Instr
	// Values are what is saved of each thread: the registers that are live, the
	// largest first, then by their number.
	Values []Value
}

// Pos returns where in the program the point is.
func (p *Point) Pos() ir.Pos {
	if p.Kind == BackEdge {
		return p.From.Term().Pos
	}
	return p.Block.Instrs[p.Index].Pos
}

// Value is a register that is saved.
type Value struct {
	Reg  ir.Reg
	Type ir.Type // a register's: Pred (1 byte, 0 or 1) or B8 to B128
	// Offset is how many bytes of each thread lie before: value v of thread t of
	// a block with n threads is Offset*n + t*size(v) from where the values begin.
	// At BackEdge points a register has the same Offset as at all others.
	Offset int64
}

// Plan is how a kernel is paused.
type Plan struct {
	Func   *ir.Func
	Class  Class
	Reason string // why it is of this class
	Pos    ir.Pos // what the reason speaks of
	Points []Point
	// Kept are loops between barriers at which threads do not stop.
	Kept []Loop
	// Waits tells that blocks may wait for one another. Of a kernel without points
	// all blocks begin, or none. In one with points a block that waits comes to a
	// point again and again, and so it stops; those that have stopped and those that
	// have not started must be resumed by one launch, in the order of their numbers:
	// in two launches one behind the other, the first could wait for the second.
	Waits bool
	// Shared lays out the kernel's static shared memory and Local each thread's
	// local memory.
	Shared, Local *ir.Layout
	// SharedBytes and LocalBytes are these layouts' sizes, multiples of 16.
	SharedBytes, LocalBytes int64
	// ThreadBytes is what the values of the largest point take for each thread, a
	// multiple of 16.
	ThreadBytes int64
}

// align is what all parts of a state are aligned to, in bytes.
const align = 16

// StatusBytes returns how long the status words of so many blocks are, with
// what fills them up. The areas follow.
func (p *Plan) StatusBytes(blocks int64) int64 { return ir.AlignUp(4*blocks, align) }

// AreaBytes returns how long the area of a block is, for so many threads and
// bytes of dynamic shared memory: shared memory, values, local memory.
func (p *Plan) AreaBytes(threads, dynamicShared int64) int64 {
	return p.LocalOffset(threads, dynamicShared) + p.LocalBytes*threads
}

// ValuesOffset returns where in an area the values begin.
func (p *Plan) ValuesOffset(dynamicShared int64) int64 {
	return ir.AlignUp(p.SharedBytes+dynamicShared, align)
}

// LocalOffset returns where in an area the local memory of the threads begins.
// Thread t's is LocalBytes*t behind it.
func (p *Plan) LocalOffset(threads, dynamicShared int64) int64 {
	return p.ValuesOffset(dynamicShared) + p.ThreadBytes*threads
}

// StateBytes returns how long the state of a whole launch is. Its blocks are
// numbered x + gx*(y + gy*z).
func (p *Plan) StateBytes(blocks, threads, dynamicShared int64) int64 {
	return p.StatusBytes(blocks) + blocks*p.AreaBytes(threads, dynamicShared)
}

// LocalPart is a part of each thread's local memory.
type LocalPart struct {
	Offset, Size int64
	// Stack is nil if all of the part is in use; otherwise the first bytes are, up
	// to the address in Stack.Top, which is saved, and Stack.Above more.
	Stack *ir.Stack
}

// Used returns how many bytes of the part are in use where its Stack.Top, if it has
// one, has this value: a multiple of 16.
func (l LocalPart) Used(top uint64) int64 {
	if l.Stack == nil {
		return l.Size
	}
	first := uint64(l.Offset) - uint64(l.Stack.Above)
	return ir.AlignUp(int64(min(top-first, uint64(l.Size))), align)
}

// LocalParts returns what is saved of local memory at a point: all but what lies
// above the tops of stacks. It stays where it is in the state; what is not saved has
// any value.
func (p *Plan) LocalParts(point int) []LocalPart {
	var parts []LocalPart
	from := int64(0)
	add := func(to int64) {
		if to > from {
			parts = append(parts, LocalPart{Offset: from, Size: to - from})
		}
	}
	for _, v := range p.Local.Vars { // in the order of their offsets
		at, size := p.Local.Offsets[v], v.Size
		s := p.stack(v, point)
		if s == nil || at%align != 0 || size%align != 0 {
			continue
		}
		add(at)
		parts = append(parts, LocalPart{at, size, s})
		from = at + size
	}
	add(p.LocalBytes)
	return parts
}

// stack returns the stack that a variable is, if its top is saved at a point.
func (p *Plan) stack(v *ir.Var, point int) *ir.Stack {
	for i := range p.Func.Stacks {
		s := &p.Func.Stacks[i]
		if s.Var == v && slices.ContainsFunc(p.Points[point-1].Values, func(v Value) bool { return v.Reg == s.Top }) {
			return s
		}
	}
	return nil
}

// ThreadPointBytes is how much the thread's own point takes before the values,
// in kernels with BackEdge points.
const ThreadPointBytes = align
