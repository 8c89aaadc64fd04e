// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package nvptx

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/passes"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/pause"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ptx"
)

// Pausable tells why a kernel that has a plan can't be paused on NVIDIA's devices
// although others could: nil if it can.
//
// A generic address of shared or local memory is another number there than in
// the state, which is the same everywhere. Those in registers are exchanged; what
// lies in memory nobody can tell from a number, and the address of a parameter
// is of this launch alone. Nor is it documented which thread of a warp has which
// elements of a wmma fragment; of those of mma it is.
func Pausable(m *ir.Module, plan *pause.Plan) error {
	if len(plan.Points) == 0 {
		return fmt.Errorf("it is %s: %s", plan.Class, plan.Reason)
	}
	if err := newEmitter(plan, nil, start{}).printable(); err != nil {
		return err
	}
	pointers := passes.FindPointers(m, plan.Func)
	if pointers.Escapes {
		return errors.New("generic addresses of shared or local memory lie in memory")
	}
	fragments := fragments(plan.Func)
	for _, point := range plan.Points {
		for _, v := range point.Values {
			if fragments[v.Reg] {
				return fmt.Errorf("%s holds a part of a wmma fragment at a pause point", plan.Func.Regs[v.Reg].Name)
			}
			if pointers.Made(v.Reg).Has(passes.Spaces(ir.Param)) {
				return fmt.Errorf("%s holds the address of a parameter", plan.Func.Regs[v.Reg].Name)
			}
		}
	}
	return nil
}

// fragments are the registers that can hold elements of wmma fragments, or what
// was computed of them one by one.
func fragments(f *ir.Func) map[ir.Reg]bool {
	found := map[ir.Reg]bool{}
	for changed := true; changed; {
		changed = false
		for _, b := range f.Blocks {
			for _, in := range b.Instrs {
				from := in.Op == ir.WmmaLoad || in.Op == ir.WmmaMma
				if in.Op != ir.Ld && in.Op != ir.Atom {
					passes.EachUse(in, func(r ir.Reg) { from = from || found[r] })
				}
				for _, r := range in.Dst {
					if from && r != ir.NoReg && !found[r] {
						found[r], changed = true, true
					}
				}
			}
		}
	}
	return found
}

// Module returns the text of a module: as it is, but for its pausable kernels,
// which are printed anew. m is the prepared form of src, plans has a plan for
// each kernel that is in m.
func Module(src *ptx.Module, m *ir.Module, plans []*pause.Plan, checks Checks) (string, error) {
	var anew []*pause.Plan
	for _, p := range plans {
		if Pausable(m, p) == nil {
			anew = append(anew, p)
		}
	}
	rest := *src
	rest.Decls = slices.DeleteFunc(slices.Clone(src.Decls), func(d ptx.Decl) bool {
		f, ok := d.(*ptx.Func)
		return ok && f.Kernel && slices.ContainsFunc(anew, func(p *pause.Plan) bool { return p.Func.Name == f.Name })
	})
	declared := map[string]bool{LaunchParam: true}
	for _, d := range rest.Decls {
		switch d := d.(type) {
		case *ptx.Var:
			declared[d.Name] = true
		case *ptx.Func:
			declared[d.Name] = true
		}
	}
	for _, v := range m.Vars {
		if v.Space != ir.Shared && !declared[v.Name] {
			return "", fmt.Errorf("PTX: %s is declared inside a function, and is not shared", v.Name)
		}
	}
	var text strings.Builder
	text.WriteString(rest.String())
	for _, p := range anew {
		k, err := kernel(m, p, declared, checks.orDefault())
		if err != nil {
			return "", fmt.Errorf("PTX of %s: %w", p.Func.Name, err)
		}
		text.WriteString(k)
	}
	return text.String(), nil
}
