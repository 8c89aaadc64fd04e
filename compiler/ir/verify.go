// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package ir

import (
	"fmt"
	"slices"
)

// Limits of what Verify accepts. They are far above what a device has, and keep
// sums of sizes within 64 bits.
const (
	maxSize  = int64(1) << 40
	maxAlign = int64(1) << 16
)

// Verify checks all that passes and back ends rely on: after it they return a
// value or an error, and never panic. It returns the first thing that is wrong,
// with the function, the block and the instruction.
func Verify(m *Module) error {
	c := &checker{module: m, vars: map[*Var]bool{}, funcs: map[*Func]bool{}}
	if err := c.checkModule(); err != nil {
		return fmt.Errorf("ir: %w", err)
	}
	for _, f := range m.Funcs {
		if err := c.checkFunc(f); err != nil {
			return fmt.Errorf("ir: @%s: %w", f.Name, err)
		}
	}
	return nil
}

type checker struct {
	module *Module
	vars   map[*Var]bool // the module's
	funcs  map[*Func]bool

	f      *Func
	own    map[*Var]bool
	blocks map[*Block]bool
}

func (c *checker) checkModule() error {
	names := map[string]bool{}
	fresh := func(name string) error {
		if !validName(name) {
			return fmt.Errorf("%q is no name", name)
		}
		if names[name] {
			return fmt.Errorf("@%s is there twice", name)
		}
		names[name] = true
		return nil
	}
	for _, f := range c.module.Funcs {
		if f == nil {
			return fmt.Errorf("a function is nil")
		}
		if err := fresh(f.Name); err != nil {
			return err
		}
		c.funcs[f] = true
	}
	for _, v := range c.module.Vars {
		if v == nil {
			return fmt.Errorf("a variable is nil")
		}
		if err := fresh(v.Name); err != nil {
			return err
		}
		c.vars[v] = true
	}
	for _, v := range c.module.Vars {
		if v.Space != Global && v.Space != Const && v.Space != Shared {
			return fmt.Errorf("@%s: a module has no variables in %d", v.Name, v.Space)
		}
		if err := c.checkVar(v); err != nil {
			return fmt.Errorf("@%s: %w", v.Name, err)
		}
	}
	return nil
}

func (c *checker) checkVar(v *Var) error {
	if v.Size < 0 || v.Size > maxSize {
		return fmt.Errorf("a size of %d", v.Size)
	}
	if v.Align < 1 || v.Align > maxAlign || v.Align&(v.Align-1) != 0 {
		return fmt.Errorf("an alignment of %d", v.Align)
	}
	stored := v.Space == Global || v.Space == Const
	if v.Init != nil && (!stored || int64(len(v.Init)) != v.Size || v.Extern) {
		return fmt.Errorf("an initial value of %d bytes", len(v.Init))
	}
	for _, a := range v.Addresses {
		if a.Offset < 0 || a.Offset > int64(len(v.Init))-8 {
			return fmt.Errorf("an address at %d of %d bytes", a.Offset, len(v.Init))
		}
		if (a.Var == nil) == (a.Func == nil) || a.Var != nil && !c.vars[a.Var] || a.Func != nil && !c.funcs[a.Func] {
			return fmt.Errorf("an address of what is not in the module")
		}
	}
	return nil
}

func (c *checker) checkFunc(f *Func) error {
	c.f, c.own = f, map[*Var]bool{}
	if err := c.checkParams(); err != nil {
		return err
	}
	for _, v := range f.Vars {
		if v == nil || v.Space != Shared && v.Space != Local && v.Space != Param {
			return fmt.Errorf("a variable that a function can't have")
		}
		if err := c.ownVar(v); err != nil {
			return err
		}
	}
	if err := uniqueNames(c.own); err != nil {
		return err
	}
	regs := make(map[string]bool, len(f.Regs))
	for _, r := range f.Regs {
		if !validName(r.Name) || regs[r.Name] {
			return fmt.Errorf("register %q is there twice, or is no name", r.Name)
		}
		regs[r.Name] = true
		if r.Type < Pred || r.Type > B128 {
			return fmt.Errorf("register %%%s has the type %s", r.Name, typeWord(r.Type))
		}
	}
	for _, s := range f.Stacks {
		if s.Var == nil || s.Var.Space != Local || !slices.Contains(f.Vars, s.Var) || s.Above < 0 || s.Above > maxSize ||
			s.Top < 0 || int(s.Top) >= len(f.Regs) || f.Regs[s.Top].Type != B64 {
			return fmt.Errorf("a stack that is none")
		}
	}
	if f.Kernel && len(f.Blocks) == 0 {
		return fmt.Errorf("a kernel without instructions")
	}
	return c.checkBlocks()
}

func (c *checker) checkParams() error {
	f := c.f
	if f.Kernel && len(f.Results) > 0 {
		return fmt.Errorf("a kernel has no results")
	}
	end := int64(0)
	for _, p := range slices.Concat(f.Params, f.Results) {
		if p == nil || p.Space != Param {
			return fmt.Errorf("a parameter that is none")
		}
		if err := c.ownVar(&p.Var); err != nil {
			return err
		}
		if p.Extern || p.Init != nil {
			return fmt.Errorf("$%s: a parameter has no initial value", p.Name)
		}
		switch {
		case !f.Kernel && p.Offset != 0:
			return fmt.Errorf("$%s: only a kernel's parameters have offsets", p.Name)
		case f.Kernel && (p.Offset < end || p.Offset > maxSize || p.Offset%p.Align != 0):
			return fmt.Errorf("$%s: at offset %d", p.Name, p.Offset)
		}
		end = p.Offset + p.Size
	}
	return nil
}

func (c *checker) ownVar(v *Var) error {
	if c.own[v] || c.vars[v] {
		return fmt.Errorf("$%s is there twice", v.Name)
	}
	c.own[v] = true
	if err := c.checkVar(v); err != nil {
		return fmt.Errorf("$%s: %w", v.Name, err)
	}
	return nil
}

func uniqueNames(vars map[*Var]bool) error {
	names := make(map[string]bool, len(vars))
	for v := range vars {
		if names[v.Name] || !validName(v.Name) {
			return fmt.Errorf("$%s is there twice, or is no name", v.Name)
		}
		names[v.Name] = true
	}
	return nil
}

func (c *checker) checkBlocks() error {
	c.blocks = make(map[*Block]bool, len(c.f.Blocks))
	names := make(map[string]bool, len(c.f.Blocks))
	for _, b := range c.f.Blocks {
		if b == nil || len(b.Instrs) == 0 {
			return fmt.Errorf("a block without instructions")
		}
		if !validName(b.Name) || names[b.Name] || c.blocks[b] {
			return fmt.Errorf("block %q is there twice, or is no name", b.Name)
		}
		c.blocks[b], names[b.Name] = true, true
	}
	for _, b := range c.f.Blocks {
		for i, in := range b.Instrs {
			if err := c.checkInstr(in, i == len(b.Instrs)-1); err != nil {
				if in == nil {
					return fmt.Errorf("block %s: %w", b.Name, err)
				}
				return fmt.Errorf("block %s: %q: %w", b.Name, c.f.Text(in), err)
			}
		}
	}
	return nil
}

func (c *checker) checkInstr(in *Instr, last bool) error {
	if in == nil || in.Op == NoOp || in.Op >= numOps {
		return fmt.Errorf("no operation")
	}
	if in.Op.Terminator() != last {
		return fmt.Errorf("a block's last instruction, and no other, ends it")
	}
	if err := c.checkTargets(in); err != nil {
		return err
	}
	if err := checkMods(in); err != nil {
		return err
	}
	info := &opTable[in.Op]
	if !allowed(info.types, in.Type) || !allowed(info.types2, in.Type2) {
		return fmt.Errorf("not of type %s %s", typeWord(in.Type), typeWord(in.Type2))
	}
	if in.Guard != NoReg && c.regType(in.Guard) != Pred {
		return fmt.Errorf("the guard is no predicate")
	}
	if in.Offset != 0 && !info.address {
		return fmt.Errorf("an offset, and no address")
	}
	if err := c.checkOperands(in, info); err != nil {
		return err
	}
	if in.Op != Call && (in.Callee != nil || in.Callees != nil || in.CallArgs != nil || in.CallResults != nil) {
		return fmt.Errorf("only call calls")
	}
	return c.checkOp(in)
}

func allowed(types []Type, t Type) bool {
	if types == nil {
		return t == NoType
	}
	return slices.Contains(types, t)
}

// checkMods checks that only those modifiers are set that the operation reads,
// and that these are in range.
func checkMods(in *Instr) error {
	rest := in.Mods
	for i := range modifiers {
		if mod := &modifiers[i]; opTable[in.Op].mods&mod.bit != 0 {
			if !mod.valid(&rest) {
				return fmt.Errorf("a modifier out of range")
			}
			mod.clear(&rest)
		}
	}
	if rest != (Mods{}) {
		return fmt.Errorf("modifiers that it doesn't have: %+v", rest)
	}
	return nil
}

// checkTargets checks where a block goes. The entry is nobody's target.
func (c *checker) checkTargets(in *Instr) error {
	least, most := 0, 0
	switch in.Op {
	case Br:
		least, most = 1, 1
		if in.Guard != NoReg {
			least, most = 2, 2
		}
	case Brx:
		least, most = 1, len(in.Targets)
	}
	if n := len(in.Targets); n < least || n > most {
		return fmt.Errorf("%d targets", n)
	}
	if in.Guard != NoReg && in.Op.Terminator() && in.Op != Br {
		return fmt.Errorf("of what ends a block only br has a guard")
	}
	if in.Guard == NoReg && in.GuardNot {
		return fmt.Errorf("no guard to invert")
	}
	for _, b := range in.Targets {
		if b == nil || !c.blocks[b] {
			return fmt.Errorf("a target in another function")
		}
		if b == c.f.Blocks[0] {
			return fmt.Errorf("a branch to the entry")
		}
	}
	return nil
}

// regType returns a register's type, NoType where there is no such register.
func (c *checker) regType(r Reg) Type {
	if r < 0 || int(r) >= len(c.f.Regs) {
		return NoType
	}
	return c.f.Regs[r].Type
}
