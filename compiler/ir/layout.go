// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package ir

import "slices"

// Layout says where variables lie in a block's shared memory, or in a thread's
// local memory.
type Layout struct {
	// Vars are in the order in which they lie.
	Vars []*Var
	// Offsets of each. Dynamic shared arrays (Extern, or of size 0) have Size.
	Offsets map[*Var]int64
	// Size of all of them in bytes, a multiple of 16.
	Size int64
}

// SharedLayout lays out the static shared variables that kernel f can reach:
// those of the module that it uses, in the module's order, then those of the
// functions, f among them, in the module's order. The dynamic array of a launch
// lies behind them, aligned to 16.
func (f *Func) SharedLayout(m *Module) *Layout {
	used := m.reach(f)
	var vars []*Var
	for _, v := range m.Vars {
		if v.Space == Shared && used.vars[v] {
			vars = append(vars, v)
		}
	}
	for _, fn := range m.Funcs {
		if used.funcs[fn] {
			vars = append(vars, varsIn(fn, Shared)...)
		}
	}
	if !slices.Contains(m.Funcs, f) {
		vars = append(vars, varsIn(f, Shared)...)
	}
	return layout(vars)
}

// LocalLayout lays out the local variables of f itself.
func (f *Func) LocalLayout() *Layout { return layout(varsIn(f, Local)) }

func varsIn(f *Func, s Space) []*Var {
	var vars []*Var
	for _, v := range f.Vars {
		if v.Space == s {
			vars = append(vars, v)
		}
	}
	return vars
}

func layout(vars []*Var) *Layout {
	l := &Layout{Vars: vars, Offsets: make(map[*Var]int64, len(vars))}
	for _, v := range vars {
		if v.Size == 0 {
			continue
		}
		l.Size = AlignUp(l.Size, v.Align)
		l.Offsets[v] = l.Size
		l.Size += v.Size
	}
	l.Size = AlignUp(l.Size, 16)
	for _, v := range vars {
		if v.Size == 0 {
			l.Offsets[v] = l.Size
		}
	}
	return l
}

// AlignUp returns the first multiple of align from n on; an align of 0 is 1.
func AlignUp(n, align int64) int64 {
	if align <= 1 {
		return n
	}
	return (n + align - 1) / align * align
}

// reached is what can be reached from a function.
type reached struct {
	vars  map[*Var]bool
	funcs map[*Func]bool
}

// reach finds the functions that f may call and the variables that they use,
// through addresses in initializers too. A function whose address is taken
// counts as called.
func (m *Module) reach(f *Func) *reached {
	r := &reached{vars: map[*Var]bool{}, funcs: map[*Func]bool{f: true}}
	todo := []*Func{f}
	addFunc := func(fn *Func) {
		if fn != nil && !r.funcs[fn] {
			r.funcs[fn] = true
			todo = append(todo, fn)
		}
	}
	var vars []*Var
	addVar := func(v *Var) {
		if v != nil && !r.vars[v] {
			r.vars[v] = true
			vars = append(vars, v)
		}
	}
	for len(todo) > 0 || len(vars) > 0 {
		if len(vars) > 0 {
			v := vars[len(vars)-1]
			vars = vars[:len(vars)-1]
			for _, a := range v.Addresses {
				addVar(a.Var)
				addFunc(a.Func)
			}
			continue
		}
		fn := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, b := range fn.Blocks {
			for _, in := range b.Instrs {
				addFunc(in.Callee)
				for _, c := range in.Callees {
					addFunc(c)
				}
				for i := range in.Args {
					addVar(in.Args[i].Var)
					addFunc(in.Args[i].Func)
				}
			}
		}
	}
	return r
}

// FuncIndex returns what a function's address is: its index among the module's
// functions, plus 1, or 0 if it is not one of them.
func (m *Module) FuncIndex(f *Func) uint64 { return uint64(slices.Index(m.Funcs, f) + 1) }

// Func returns the function of that name, or nil.
func (m *Module) Func(name string) *Func {
	if i := slices.IndexFunc(m.Funcs, func(f *Func) bool { return f.Name == name }); i >= 0 {
		return m.Funcs[i]
	}
	return nil
}
