// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Package interp runs kernels in the compiler's form as docs/ir.md says what
// they mean: the oracle that every back end is compared with.
//
// It is exact where PTX is, and takes the best value where PTX allows several:
// approximate functions are rounded to the nearest. It finds what devices leave
// open: accesses to what is not mapped, misaligned addresses, barriers that not
// all threads reach. It can stop a kernel at the points of a pause.Plan and
// resume it from there, with a state as every back end has it.
//
// Threads run in warps of 32, in lockstep. Those that go different ways take
// turns, the one that is behind first, and meet again as early as possible; one
// that waits for another of its warp does not keep that from running. Blocks run
// one after the other, but for those that wait for one another. Everything
// happens in one goroutine: the same launch has the same result each time.
//
// It knows no back end, and does not change the module.
package interp

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/pause"
)

// Launch is a kernel with what it is launched with.
type Launch struct {
	Module *ir.Module
	Kernel *ir.Func
	// Grid is in blocks, Block in threads; a dimension of 0 counts as 1.
	Grid, Block   [3]uint32
	DynamicShared uint32 // bytes
	// Params are the bytes of the parameter block (ir.Parameter.Offset).
	Params []byte
	// Vars are the addresses of the module's Global and Const variables, which
	// are in Memory; Memory.Load makes both.
	Vars   map[*ir.Var]uint64
	Memory *Memory
	// Blocks are the linear indices of the blocks to run; nil: all.
	Blocks []uint32

	// Plan and State, of Plan.StateBytes, are for pausing: each block goes on as
	// its status word says, and the word is set when the block leaves. nil: no
	// pausing.
	Plan  *pause.Plan
	State []byte
	// Pause is asked at each pause point whether the block stops there; 0 is the
	// kernel's entry. At a back-edge it is asked for each group of threads that
	// reach it together; where that is in a loop between barriers, with the number of the
	// barrier where the block stops then. nil: nothing stops.
	Pause func(block uint32, point int) bool

	// Out gets what printf prints; nil: nothing.
	Out io.Writer
	// MaxSteps bounds the instructions of all warps together; 0: no bound.
	MaxSteps uint64
}

// maxThreads of a block, as on every device.
const maxThreads = 1024

// Run runs a launch to its end, or until all of its blocks are paused or done.
// It returns a *Fault for what the program did wrong, the context's error, or
// one that tells what is wrong with the launch.
func Run(ctx context.Context, l *Launch) error {
	g, err := newGrid(ctx, l)
	if err != nil {
		return err
	}
	return g.run()
}

// grid is a launch that runs.
type grid struct {
	*Launch
	ctx          context.Context
	dim, ntid    [3]uint32
	blocks       uint32 // of the whole grid
	threads      int    // of a block
	entry        *code
	codes        map[*ir.Func]*code
	shared       *ir.Layout
	sharedBytes  int64 // static and dynamic
	steps, limit uint64
	points       map[*ir.Instr]int    // of barriers, and of what polls for them
	edges        map[[2]*ir.Block]int // of back-edges
	printer      *printer
	fault        *Fault
}

func newGrid(ctx context.Context, l *Launch) (*grid, error) {
	g := &grid{Launch: l, ctx: ctx, limit: l.MaxSteps, codes: map[*ir.Func]*code{}}
	g.dim, g.ntid = atLeastOne(l.Grid), atLeastOne(l.Block)
	blocks, ok := volume(g.dim, math.MaxUint32)
	threads, ok2 := volume(g.ntid, maxThreads)
	switch {
	case !ok:
		return nil, fmt.Errorf("interp: a grid of %v blocks is too large", l.Grid)
	case !ok2:
		return nil, fmt.Errorf("interp: a block of %v threads is too large", l.Block)
	case l.Memory == nil:
		return nil, errors.New("interp: a launch needs memory")
	case len(l.Kernel.Blocks) == 0:
		return nil, fmt.Errorf("interp: kernel %s has no body", l.Kernel.Name)
	}
	g.blocks, g.threads = uint32(blocks), int(threads)
	for _, p := range l.Kernel.Params {
		if p.Offset+p.Size > int64(len(l.Params)) {
			return nil, fmt.Errorf("interp: parameter %s of %s ends at %d, the parameter block has %d bytes", p.Name, l.Kernel.Name, p.Offset+p.Size, len(l.Params))
		}
	}
	for _, b := range l.Blocks {
		if b >= g.blocks {
			return nil, fmt.Errorf("interp: block %d of a grid of %d", b, g.blocks)
		}
	}
	if g.limit == 0 {
		g.limit = math.MaxUint64
	}
	g.shared = l.Kernel.SharedLayout(l.Module)
	g.sharedBytes = g.shared.Size + int64(l.DynamicShared)
	g.printer = &printer{out: l.Out}
	if err := g.preparePausing(); err != nil {
		return nil, err
	}
	var err error
	g.entry, err = g.decode(l.Kernel)
	return g, err
}

func atLeastOne(d [3]uint32) [3]uint32 { return [3]uint32{max(d[0], 1), max(d[1], 1), max(d[2], 1)} }

func volume(d [3]uint32, most uint64) (uint64, bool) {
	n := uint64(1)
	for _, x := range d {
		if n *= uint64(x); n > most {
			return 0, false
		}
	}
	return n, true
}

// The turns of warps and of parts of them, in instructions.
const (
	warpTurn  = 4096
	splitTurn = 256
	// How long a part of a warp may be kept waiting while another one spins, and
	// while another one seems to work.
	shortWait = 256
	longWait  = 1 << 16
	// Who looks at memory that others write once in so many instructions, spins.
	often = 64
	// A block that has not ended after so many instructions may be waiting for
	// one that has not begun.
	patience = 1 << 18
)

// run runs the blocks. One that ends makes room for the next; a block that seems
// to wait for another (it looks at memory again and again) lets others begin.
func (g *grid) run() error {
	next := func() func() (uint32, bool) {
		i := 0
		return func() (uint32, bool) {
			i++
			if g.Blocks != nil {
				if i > len(g.Blocks) {
					return 0, false
				}
				return g.Blocks[i-1], true
			}
			return uint32(i - 1), i <= int(g.blocks)
		}
	}()
	var resident []*block
	since := uint64(0) // steps at the last beginning or end of a block
	waiting := true
	for more := true; more || len(resident) > 0; {
		if more && (waiting || g.steps-since > patience) {
			var id uint32
			if id, more = next(); more {
				b, err := g.begin(id)
				if err != nil {
					return err
				}
				if b != nil {
					resident = append(resident, b)
				}
				since = g.steps
			}
		}
		if err := g.ctx.Err(); err != nil {
			return err
		}
		waiting = true
		kept := resident[:0]
		for _, b := range resident {
			b.turn()
			if g.fault != nil {
				return g.fault
			}
			if b.left() {
				if err := g.end(b); err != nil {
					return err
				}
				since = g.steps
				continue
			}
			waiting = waiting && b.polling()
			kept = append(kept, b)
		}
		clear(resident[len(kept):])
		resident = kept
	}
	return g.printer.err
}

// le is the byte order of every device.
var le = binary.LittleEndian
