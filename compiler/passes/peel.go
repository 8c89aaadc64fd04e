// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package passes

import (
	"errors"
	"fmt"
	"slices"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
)

// ErrIrreducible tells of a control flow with a loop that is entered at more
// than one place.
var ErrIrreducible = errors.New("a loop is entered at more than one place")

// Peeled is a function that begins in the middle of another one.
type Peeled struct {
	// Func has the other's parameters, variables and registers, with the same
	// numbers, and its instructions but for those that end a block.
	Func *ir.Func
	// Origin has for each block the one that it is a copy of; the first is a copy
	// of a block's end.
	Origin map[*ir.Block]*ir.Block
}

// Peel returns a function, of that name, that goes on behind instruction index of
// block b of f, or, with an index of -1, at the beginning of b. Its control flow
// is reducible if f's is (else the error is ErrIrreducible): some compilers take
// no jump into the middle of a loop.
//
// So each loop around b is peeled: what is left of the present round is a copy of
// its own, without the loop's header, and behind it comes the whole loop, by its
// header. With loops in one another that goes from the inner to the outer: the
// copy of an outer loop's round has the inner loop in it as a whole.
func Peel(f *ir.Func, b *ir.Block, index int, name string) (*Peeled, error) {
	c := NewCFG(f)
	start, reachable := c.Number[b]
	if !reachable || index >= len(b.Instrs)-1 {
		return nil, fmt.Errorf("instruction %d of block %s of @%s is never executed, or ends the block", index, b.Name, f.Name)
	}
	p := &peeler{
		cfg: c, around: c.Loops(c.Dominators()).Around(start), copies: map[peeledBlock]*ir.Block{}, names: map[string]bool{},
		out: &Peeled{Func: &ir.Func{}, Origin: map[*ir.Block]*ir.Block{}},
	}
	*p.out.Func = *f
	p.out.Func.Name, p.out.Func.Regs, p.out.Func.Blocks = name, slices.Clone(f.Regs), nil
	p.begin(b, index)
	for i := 0; i < len(p.todo); i++ {
		p.fill(p.todo[i])
	}
	after := NewCFG(p.out.Func)
	if loops := after.Loops(after.Dominators()); len(loops.Irreducible) > 0 {
		e := loops.Irreducible[0]
		return nil, fmt.Errorf("@%s: from block %s to %s: %w", f.Name, after.Blocks[e.From].Name, after.Blocks[e.To].Name, ErrIrreducible)
	}
	return p.out, nil
}

// peeledBlock is a block in one of the copies. Copy i, from 0, is what is left of
// the round of the ith loop around the start, from inside; the last is the whole
// function.
type peeledBlock struct {
	copy, block int
}

type peeler struct {
	cfg    *CFG
	around []*Loop
	copies map[peeledBlock]*ir.Block
	names  map[string]bool
	todo   []peeledBlock
	out    *Peeled
}

func (p *peeler) begin(b *ir.Block, index int) {
	first := p.block("resume", b)
	if index < 0 {
		branch(first, p.target(0, b), ir.Pos{})
		return
	}
	first.Instrs = append(first.Instrs, b.Instrs[index+1:len(b.Instrs)-1]...)
	p.end(first, 0, b)
}

// target returns the block to which a branch to b goes from a copy: the same copy,
// while the loop's round lasts, and else one further out.
func (p *peeler) target(from int, b *ir.Block) *ir.Block {
	n := p.cfg.Number[b]
	at := peeledBlock{from, n}
	for at.copy < len(p.around) && (!p.around[at.copy].Contains(n) || p.around[at.copy].Header == n) {
		at.copy++
	}
	if p.copies[at] == nil {
		p.copies[at] = p.block(b.Name, b)
		p.todo = append(p.todo, at)
	}
	return p.copies[at]
}

func (p *peeler) block(want string, origin *ir.Block) *ir.Block {
	name := want
	for i := 1; p.names[name]; i++ {
		name = fmt.Sprintf("%s.%d", want, i)
	}
	p.names[name] = true
	b := &ir.Block{Name: name}
	p.out.Func.Blocks = append(p.out.Func.Blocks, b)
	p.out.Origin[b] = origin
	return b
}

func (p *peeler) fill(at peeledBlock) {
	from, to := p.cfg.Blocks[at.block], p.copies[at]
	to.Instrs = append(to.Instrs, from.Instrs[:len(from.Instrs)-1]...)
	p.end(to, at.copy, from)
}

// end gives a block in a copy its last instruction.
func (p *peeler) end(to *ir.Block, in int, from *ir.Block) {
	last := *from.Term()
	last.Targets = make([]*ir.Block, len(last.Targets))
	for i, b := range from.Succs() {
		last.Targets[i] = p.target(in, b)
	}
	to.Instrs = append(to.Instrs, &last)
}
