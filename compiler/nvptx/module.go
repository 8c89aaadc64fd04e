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
// is of this launch alone.
func Pausable(m *ir.Module, plan *pause.Plan) error {
	if len(plan.Points) == 0 {
		return fmt.Errorf("it is %s: %s", plan.Class, plan.Reason)
	}
	pointers := passes.FindPointers(m, plan.Func)
	if pointers.Escapes {
		return errors.New("generic addresses of shared or local memory lie in memory")
	}
	for _, point := range plan.Points {
		for _, v := range point.Values {
			if pointers.Made(v.Reg).Has(passes.Spaces(ir.Param)) {
				return fmt.Errorf("%s holds the address of a parameter", plan.Func.Regs[v.Reg].Name)
			}
		}
	}
	return nil
}

// Module returns the text of a module: as it is, but for its pausable kernels,
// which are printed anew. m is the prepared form of src, plans has a plan for
// each kernel that is in m.
func Module(src *ptx.Module, m *ir.Module, plans []*pause.Plan) (string, error) {
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
		k, err := kernel(m, p, declared)
		if err != nil {
			return "", fmt.Errorf("PTX of %s: %w", p.Func.Name, err)
		}
		text.WriteString(k)
	}
	return text.String(), nil
}
