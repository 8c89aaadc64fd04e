// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Package lower makes the compiler's form of a program, package ir's, from PTX's
// tree: names are bound, types checked, addresses of variables folded, the carry
// flag is a predicate, and control flow is in blocks.
//
// Everything that is wrong with a program and that the parser can't see is found
// here, as a *ptx.Error with its place: after it, no part of the compiler rejects
// a program. An opcode or modifier that is not known is such an error; nothing is
// passed over.
//
// It knows nothing of what any instruction computes, and of any device.
package lower

import (
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ptx"
)

// Lower makes the module's IR. The error is a *ptx.Error.
func Lower(src *ptx.Module) (*ir.Module, error) {
	l := &lowerer{
		src: src, m: &ir.Module{},
		globals: &scope{names: map[string]*symbol{}},
		files:   map[int32]int32{},
	}
	l.module()
	if l.err != nil {
		return nil, l.err
	}
	return l.m, nil
}

// lowerer has what concerns the module.
type lowerer struct {
	src     *ptx.Module
	m       *ir.Module
	globals *scope
	files   map[int32]int32 // .file's numbers to indices of m.Files, from 1
	// bytes is what initializers take.
	bytes int64
	// err is the first error. Who made it goes on with a value of no meaning;
	// the loops over declarations and statements end.
	err *ptx.Error
}

// fail keeps the first error.
func (l *lowerer) fail(pos ptx.Pos, format string, args ...any) {
	if l.err == nil {
		l.err = pos.Errorf(format, args...)
	}
}

func (l *lowerer) module() {
	if l.src.AddressSize != 64 {
		l.fail(ptx.Pos{Line: 1, Col: 1}, "addresses of %d bits are not supported, only those of 64", l.src.AddressSize)
	}
	if len(l.src.Targets) > 0 {
		l.m.Target = l.src.Targets[0]
	}
	for i, f := range l.src.Files {
		l.m.Files = append(l.m.Files, f.Name)
		l.files[f.Number] = int32(i + 1)
	}
	l.declare()
	for _, d := range l.src.Decls {
		if v, ok := d.(*ptx.Var); ok && l.err == nil {
			l.initialize(v)
		}
	}
	var made []*function
	for _, d := range l.src.Decls {
		f, ok := d.(*ptx.Func)
		if !ok || f.Body == nil || l.err != nil {
			continue
		}
		fn := newFunction(l, f)
		fn.lower()
		made = append(made, fn)
	}
	if l.err == nil {
		l.resolveIndirect(made)
		l.spreadReasons()
	}
}

// declare binds the module's names, so that they can be used before they are
// defined.
func (l *lowerer) declare() {
	for _, d := range l.src.Decls {
		if l.err != nil {
			return
		}
		switch d := d.(type) {
		case *ptx.Var:
			l.declareVar(d)
		case *ptx.Func:
			l.declareFunc(d)
		}
	}
	for _, d := range l.src.Decls {
		if a, ok := d.(*ptx.Alias); ok && l.err == nil {
			l.alias(a)
		}
	}
}

func (l *lowerer) alias(a *ptx.Alias) {
	of := l.globals.names[a.Of]
	if of == nil || of.fn == nil || of.fn.Blocks == nil && !of.defined {
		l.fail(a.Pos, "%s is no function of this module", clip(a.Of))
		return
	}
	if old := l.globals.names[a.Name]; old != nil {
		if old.fn == nil || old.defined {
			l.fail(a.Pos, "%s is declared twice", clip(a.Name))
			return
		}
		// What was declared is the other function under its own name.
		l.removeFunc(old.fn)
	}
	l.globals.names[a.Name] = of
}

func (l *lowerer) removeFunc(f *ir.Func) {
	for i, other := range l.m.Funcs {
		if other == f {
			l.m.Funcs = append(l.m.Funcs[:i], l.m.Funcs[i+1:]...)
			return
		}
	}
}

func (l *lowerer) pos(p ptx.Pos) ir.Pos {
	return ir.Pos{Line: p.Line, Col: p.Col, File: l.files[p.File], SrcLine: p.SrcLine}
}

func (l *lowerer) declareFunc(d *ptx.Func) {
	old := l.globals.names[d.Name]
	if old != nil {
		if old.fn == nil || old.defined && d.Body != nil || old.fn.Kernel != d.Kernel {
			l.fail(d.Pos, "%s is declared twice", clip(d.Name))
			return
		}
		if d.Body == nil {
			return
		}
	}
	f := &ir.Func{}
	if old != nil {
		f = old.fn
	} else {
		l.m.Funcs = append(l.m.Funcs, f)
		l.globals.names[d.Name] = &symbol{fn: f, decl: d}
	}
	*f = ir.Func{Name: d.Name, Kernel: d.Kernel, Pos: l.pos(d.Pos)}
	f.Params = l.parameters(d.Params, d.Kernel)
	f.Results = l.parameters(d.Results, false)
	l.attributes(f, d)
	s := l.globals.names[d.Name]
	s.decl, s.defined = d, d.Body != nil
}

// maxParams is what a kernel's parameters may have, in bytes (PTX ISA, section
// "Kernel Function Parameters": 32764 from version 8.1 on).
const maxParams = 32764

func (l *lowerer) parameters(list []*ptx.Var, kernel bool) []*ir.Parameter {
	var out []*ir.Parameter
	var end int64
	seen := map[string]bool{}
	for i, v := range list {
		if v.Name != "" && v.Name != "_" && seen[v.Name] {
			l.fail(v.Pos, "%s is declared twice", clip(v.Name))
		}
		seen[v.Name] = true
		p := &ir.Parameter{Var: ir.Var{Name: v.Name, Space: ir.Param}}
		if v.Name == "" || v.Name == "_" {
			p.Name = "param" + itoa(i)
		}
		p.Size, p.Align = l.layout(v)
		if kernel {
			p.Offset = alignUp(end, p.Align)
			if end = p.Offset + p.Size; end > maxParams {
				l.fail(v.Pos, "a kernel's parameters have %d bytes at most", maxParams)
				return nil
			}
		}
		out = append(out, p)
	}
	return out
}

func (l *lowerer) attributes(f *ir.Func, d *ptx.Func) {
	for _, dir := range d.Directives {
		switch dir.Name {
		case "maxntid":
			f.Attrs.MaxThreads = dimensions(dir.Values)
		case "reqntid":
			f.Attrs.ReqThreads = dimensions(dir.Values)
		case "minnctapersm":
			f.Attrs.MinBlocks = uint32(dir.Values[0])
		case "maxnreg":
			f.Attrs.MaxRegs = uint32(dir.Values[0])
		case "reqnctapercluster":
			f.Attrs.Cluster = dimensions(dir.Values)
			if c := f.Attrs.Cluster; c != [3]uint32{1, 1, 1} {
				f.NVIDIAOnly = append(f.NVIDIAOnly, ir.Reason{Pos: f.Pos, Text: "its blocks form clusters"})
			}
		case "maxclusterrank", "explicitcluster", "blocksareclusters":
			f.NVIDIAOnly = append(f.NVIDIAOnly, ir.Reason{Pos: f.Pos, Text: "its blocks form clusters"})
		}
	}
}

func dimensions(values []int64) [3]uint32 {
	d := [3]uint32{1, 1, 1}
	for i, v := range values {
		d[i] = uint32(v)
	}
	return d
}

// spreadReasons gives a function the reasons of those that it calls, and takes
// the bodies of those that can't run everywhere.
func (l *lowerer) spreadReasons() {
	callers := map[*ir.Func][]*ir.Func{}
	for _, f := range l.m.Funcs {
		for _, b := range f.Blocks {
			for _, in := range b.Instrs {
				if in.Op != ir.Call {
					continue
				}
				if in.Callee != nil {
					callers[in.Callee] = append(callers[in.Callee], f)
				}
				for _, c := range in.Callees {
					callers[c] = append(callers[c], f)
				}
			}
		}
	}
	var work []*ir.Func
	for _, f := range l.m.Funcs {
		if len(f.NVIDIAOnly) > 0 {
			work = append(work, f)
		}
	}
	for len(work) > 0 {
		f := work[0]
		work = work[1:]
		for _, c := range callers[f] {
			if len(c.NVIDIAOnly) == 0 {
				c.NVIDIAOnly = f.NVIDIAOnly
				work = append(work, c)
			}
		}
	}
	for _, f := range l.m.Funcs {
		if len(f.NVIDIAOnly) > 0 && f.Blocks != nil {
			f.Regs, f.Vars = nil, nil
			f.Blocks = []*ir.Block{{Name: "entry", Instrs: []*ir.Instr{{Op: ir.Trap, Guard: ir.NoReg, Pos: f.NVIDIAOnly[0].Pos}}}}
		}
	}
}
