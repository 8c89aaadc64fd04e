// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package passes

import (
	"fmt"
	"slices"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
)

// StackBytes is a thread's stack for recursive functions and calls through
// pointers, in a kernel that has such. A thread that needs more traps.
const StackBytes = 16 << 10

// slotAlign is what everything in a frame is aligned to, so that where parameters
// lie depends on their sizes only: a call through a pointer knows no more.
const slotAlign = 16

// callStack gives the calls that are left a stack in local memory, so that a
// kernel is one function: each function that can be reached gets its body in the
// kernel once, a call pushes a number for where it returns to, and a return goes
// there with Brx.
//
// A frame has that number, the parameters, the results, the function's other
// variables, and a place for each register that is read behind a call. Frames lie
// one behind the other; the register fp has the current one's address.
func callStack(m *ir.Module) error {
	for _, f := range m.Funcs {
		if !f.Kernel || !hasCalls(f) {
			continue
		}
		for _, g := range m.Funcs {
			if !g.Kernel && TooLarge(g) {
				return fmt.Errorf("@%s has %d blocks and %d registers: too many for a function that is called on a stack", g.Name, len(g.Blocks), len(g.Regs))
			}
		}
		newStacker(m, f).run()
	}
	return nil
}

func hasCalls(f *ir.Func) bool {
	for _, b := range f.Blocks {
		for _, in := range b.Instrs {
			if in.Op == ir.Call {
				return true
			}
		}
	}
	return false
}

type stacker struct {
	*editor
	module *ir.Module
	kernel *ir.Func
	stack  *ir.Var
	fp     ir.Reg
	target ir.Reg // where to return to, or which function to call

	bodies map[*ir.Func]*stackedBody
	order  []*stackedBody
	// returns are the blocks behind calls. A return's number is its index.
	returns  []*ir.Block
	grows    bool      // some function uses Alloca
	dispatch *ir.Block // goes to one of returns
	overflow *ir.Block // traps
}

// stackedBody is a function on its way into the kernel.
type stackedBody struct {
	f      *ir.Func
	root   bool // the kernel itself, whose frame is empty
	c      *copier
	spills map[ir.Reg]int64 // of registers that live across a call
	vars   map[*ir.Var]int64
	top    int64 // where the top of what Alloca takes is kept
	size   int64
	live   *Liveness
	cfg    *CFG
	blocks []*ir.Block
}

func newStacker(m *ir.Module, f *ir.Func) *stacker {
	s := &stacker{editor: edit(f), module: m, kernel: f, bodies: map[*ir.Func]*stackedBody{}}
	s.stack = s.local("hg_stack", StackBytes, slotAlign)
	s.fp = s.reg("hg_fp", ir.B64)
	s.target = s.reg("hg_target", ir.B32)
	s.dispatch, s.overflow = s.block("hg_return"), s.block("hg_overflow")
	emit(s.overflow, ir.Instr{Op: ir.Trap})
	s.grows = slices.ContainsFunc(m.Funcs, usesAlloca)
	return s
}

func (s *stacker) run() {
	splitCalls(s.kernel)
	s.body(s.kernel)
	for i := 0; i < len(s.order); i++ {
		s.rewrite(s.order[i])
	}
	var blocks []*ir.Block
	frame := int64(0)
	for _, b := range s.order {
		blocks = append(blocks, b.blocks...)
		frame = max(frame, b.size)
	}
	s.kernel.Stacks = append(s.kernel.Stacks, ir.Stack{Var: s.stack, Top: s.fp, Above: frame})
	entry := blocks[0]
	start := &ir.Instr{Op: ir.Mov, Type: ir.U64, Guard: ir.NoReg, Dst: []ir.Reg{s.fp}, Args: []ir.Operand{addressOf(s.stack)}}
	entry.Instrs = append([]*ir.Instr{start}, entry.Instrs...)
	if len(s.returns) > 0 {
		emit(s.dispatch, ir.Instr{Op: ir.Ld, Type: ir.U32, Mods: ir.Mods{Space: ir.Local}, Dst: []ir.Reg{s.target}, Args: []ir.Operand{ir.R(s.fp)}})
		emit(s.dispatch, ir.Instr{Op: ir.Brx, Args: []ir.Operand{ir.R(s.target)}, Targets: s.returns})
	} else {
		emit(s.dispatch, ir.Instr{Op: ir.Trap})
	}
	s.kernel.Blocks = append(blocks, s.dispatch, s.overflow)
	localSlots(s.kernel)
}

// body lays out a function's frame and clones its registers and blocks, once.
func (s *stacker) body(f *ir.Func) *stackedBody {
	if b := s.bodies[f]; b != nil {
		return b
	}
	b := &stackedBody{f: f, root: f == s.kernel, spills: map[ir.Reg]int64{}, vars: map[*ir.Var]int64{}}
	s.bodies[f] = b
	s.order = append(s.order, b)
	if b.root {
		return b
	}
	splitCalls(f)
	b.cfg = NewCFG(f)
	b.live = b.cfg.Liveness()
	b.c = s.editor.body(f)
	b.top = slotAlign // behind where to return to
	b.size = 2 * slotAlign
	add := func(v *ir.Var) {
		b.vars[v] = b.size
		b.size += ir.AlignUp(v.Size, slotAlign)
	}
	for _, p := range f.Params {
		add(&p.Var)
	}
	for _, p := range f.Results {
		add(&p.Var)
	}
	for _, v := range f.Vars {
		b.size = ir.AlignUp(b.size, v.Align)
		add(v)
	}
	for n, block := range b.cfg.Blocks {
		for i, in := range block.Instrs {
			if in.Op != ir.Call {
				continue
			}
			for _, r := range b.live.After(n, i).Regs() {
				if _, there := b.spills[r]; !there {
					b.spills[r] = b.size
					b.size += slotAlign
				}
			}
		}
	}
	return b
}

// rewrite moves a function's instructions into the kernel.
func (s *stacker) rewrite(b *stackedBody) {
	for _, from := range b.f.Blocks {
		to, instrs := from, from.Instrs
		if b.root {
			to.Instrs = nil
		} else {
			to = b.c.blocks[from]
		}
		b.blocks = append(b.blocks, to)
		for i, in := range instrs {
			if in.Op == ir.Call {
				// The branch behind it goes where it comes back to.
				s.call(b, to, in, s.blockOf(b, instrs[i+1].Targets[0]), s.across(b, from, i))
				break
			}
			switch {
			case b.root:
				to.Instrs = append(to.Instrs, in)
			case in.Op == ir.Ret:
				branch(to, s.dispatch, in.Pos)
			default:
				s.framed(b, to, in)
			}
		}
	}
}

// blockOf returns what became of a function's block.
func (s *stacker) blockOf(b *stackedBody, from *ir.Block) *ir.Block {
	if b.root {
		return from
	}
	return b.c.blocks[from]
}

// across returns the registers that live across a call. A kernel's own are
// nobody else's: nothing comes back to it but what it called itself.
func (s *stacker) across(b *stackedBody, from *ir.Block, i int) []ir.Reg {
	if b.root {
		return nil
	}
	n, reachable := b.cfg.Number[from]
	if !reachable {
		return nil
	}
	return b.live.After(n, i).Regs()
}

// place returns where a variable of the function is.
func (s *stacker) place(b *stackedBody, v *ir.Var) place {
	if b.root {
		return place{base: addressOf(v)}
	}
	return place{base: ir.R(s.fp), offset: b.vars[v]}
}

// framed copies an instruction, with variables in the frame.
func (s *stacker) framed(b *stackedBody, to *ir.Block, in *ir.Instr) {
	n := b.c.instr(in)
	ownParams(n)
	for i := range n.Args {
		a := &n.Args[i]
		offset, own := b.vars[a.Var]
		if a.Kind != ir.VarOperand || !own {
			continue
		}
		offset += int64(a.Imm)
		n.Text = ""
		if i == 0 && n.Op.Address() {
			n.Args[0] = ir.R(s.fp)
			n.Offset += offset
			continue
		}
		at := s.reg("hg_at", ir.B64)
		emit(to, ir.Instr{Op: ir.Add, Type: ir.U64, Dst: []ir.Reg{at}, Args: []ir.Operand{ir.R(s.fp), ir.Imm(uint64(offset))}, Pos: n.Pos})
		n.Args[i] = ir.R(at)
		if n.Op == ir.Mov && n.Type.Size() == 4 {
			n.Op, n.Type, n.Type2 = ir.Cvt, ir.U32, ir.U64
		}
	}
	to.Instrs = append(to.Instrs, n)
}

// call makes the frame of what is called, and goes there. What comes back does
// so in a block that undoes it.
func (s *stacker) call(b *stackedBody, to *ir.Block, in *ir.Instr, after *ir.Block, live []ir.Reg) {
	size := int64(0)
	for _, f := range s.callees(in) {
		size = max(size, s.body(f).size)
	}
	if size == 0 || size > StackBytes {
		branch(to, s.overflow, in.Pos) // nothing that it could call, or no room for it
		return
	}
	at := in.Pos
	next := ir.Imm(uint64(b.size))
	room, full := s.reg("hg_room", ir.B64), s.reg("hg_full", ir.Pred)
	enter, back := s.block("hg_enter"), s.block("hg_back")
	emit(to, ir.Instr{Op: ir.Mov, Type: ir.U64, Dst: []ir.Reg{room}, Args: []ir.Operand{addressOf(s.stack)}, Pos: at})
	emit(to, ir.Instr{Op: ir.Sub, Type: ir.U64, Dst: []ir.Reg{room}, Args: []ir.Operand{ir.R(s.fp), ir.R(room)}, Pos: at})
	emit(to, ir.Instr{Op: ir.Add, Type: ir.U64, Dst: []ir.Reg{room}, Args: []ir.Operand{ir.R(room), next}, Pos: at})
	emit(to, ir.Instr{
		Op: ir.Setp, Type: ir.U64, Mods: ir.Mods{Cmp: ir.GT}, Dst: []ir.Reg{full},
		Args: []ir.Operand{ir.R(room), ir.Imm(uint64(StackBytes - size))}, Pos: at,
	})
	to.Instrs = append(to.Instrs, &ir.Instr{Op: ir.Br, Guard: full, Targets: []*ir.Block{s.overflow, enter}, Pos: at})

	for _, r := range live {
		s.spill(b, enter, r, at)
	}
	top := s.saveTop(b, enter, at)
	// Where parameters and results lie is the same in all that can be called.
	offset := b.size + 2*slotAlign
	for _, v := range in.CallArgs {
		s.moveBytes(enter, place{ir.R(s.fp), offset}, s.place(b, v), v.Size, min(v.Align, slotAlign), at)
		offset += ir.AlignUp(v.Size, slotAlign)
	}
	emit(enter, ir.Instr{
		Op: ir.St, Type: ir.U32, Mods: ir.Mods{Space: ir.Local},
		Args: []ir.Operand{ir.R(s.fp), ir.Imm(uint64(len(s.returns)))}, Offset: b.size, Pos: at,
	})
	s.returns = append(s.returns, back)
	emit(enter, ir.Instr{Op: ir.Add, Type: ir.U64, Dst: []ir.Reg{s.fp}, Args: []ir.Operand{ir.R(s.fp), next}, Pos: at})
	b.blocks = append(b.blocks, enter)
	s.enter(b, enter, in)

	emit(back, ir.Instr{Op: ir.Sub, Type: ir.U64, Dst: []ir.Reg{s.fp}, Args: []ir.Operand{ir.R(s.fp), next}, Pos: at})
	for _, v := range in.CallResults {
		s.moveBytes(back, s.place(b, v), place{ir.R(s.fp), offset}, v.Size, min(v.Align, slotAlign), at)
		offset += ir.AlignUp(v.Size, slotAlign)
	}
	for _, r := range live {
		s.reload(b, back, r, at)
	}
	s.restoreTop(b, back, top, at)
	branch(back, after, at)
	b.blocks = append(b.blocks, back)
}
