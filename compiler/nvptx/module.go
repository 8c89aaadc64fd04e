// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package nvptx

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/pause"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ptx"
)

// Pausable tells why a kernel that has a plan can't be paused on NVIDIA's devices
// although others could: nil if it can.
//
// A device has shared and local memory at other numbers than the state, which is
// the same everywhere. Addresses in registers are exchanged where their base is
// known; what lies in memory nobody can tell from a number. Addresses of
// parameters and functions are a device's own. Which thread of a warp
// has which elements of a wmma fragment is not documented; of those of mma it is.
func Pausable(m *ir.Module, plan *pause.Plan) error {
	if len(plan.Points) == 0 {
		return fmt.Errorf("it is %s: %s", plan.Class, plan.Reason)
	}
	if name := taken(m, plan.Func); name != "" {
		return fmt.Errorf("the module has a %s of its own", name)
	}
	if err := newEmitter(plan, nil).printable(); err != nil {
		return err
	}
	if own, ours := paramBytes(plan.Func); ours > maxParams || ours > smallParams && own <= smallParams {
		return fmt.Errorf("its parameters have %d bytes, and leave no room for the launch's", own)
	}
	if plan.Class == pause.BackEdgePausable && before(m.Target, 70) {
		return fmt.Errorf("threads of a warp can't meet at a barrier one by one before sm_70, and this is %s", m.Target)
	}
	for _, v := range plan.Shared.Vars {
		if v.Size == 0 && v.Align > 16 {
			return fmt.Errorf("%s is aligned to %d bytes, and states align to 16", v.Name, v.Align)
		}
	}
	bases := findBases(plan)
	if in := bases.stored; in != nil {
		return fmt.Errorf("addresses of shared or local memory, of variables or functions lie in memory (stored in line %d)", in.Pos.Line)
	}
	for _, point := range plan.Points {
		for _, v := range point.Values {
			if what := bases.unsaved(v.Reg); what != "" {
				return fmt.Errorf("%s holds %s at the point in line %d", plan.Func.Regs[v.Reg].Name, what, point.Pos().Line)
			}
		}
	}
	return nil
}

// taken returns which of the names that we give is the module's already, or "".
func taken(m *ir.Module, f *ir.Func) string {
	for _, v := range m.Vars {
		if slices.Contains([]string{LaunchParam, sharedArray, localArray}, v.Name) {
			return v.Name
		}
	}
	if name := ResumeName(f.Name); slices.ContainsFunc(m.Funcs, func(f *ir.Func) bool { return f.Name == name }) {
		return name
	}
	return ""
}

// What a kernel's parameters can have, in bytes: since PTX 8.1 for sm_70 and newer,
// and before (PTX ISA, ".param State Space"). A module that has more than the
// smaller number is of the newer kind.
const (
	maxParams   = 32764
	smallParams = 4096
)

// paramBytes returns how long a kernel's own parameters are, and with ours.
func paramBytes(f *ir.Func) (own, ours int64) {
	for _, p := range f.Params {
		own = max(own, p.Offset+p.Size)
	}
	return own, ir.AlignUp(own, 8) + LaunchBytes
}

// before tells of targets, "sm_61", below an architecture.
func before(target string, arch int) bool {
	digits := strings.TrimRight(strings.TrimPrefix(target, "sm_"), "abcdefghijklmnopqrstuvwxyz")
	n, err := strconv.Atoi(digits)
	return err == nil && n < arch
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
	linkage := map[string]ptx.Linkage{}
	for _, d := range src.Decls {
		if f, ok := d.(*ptx.Func); ok {
			linkage[f.Name] |= f.Linkage
		}
	}
	var text strings.Builder
	text.WriteString(rest.String())
	written := sourceOf(src)
	for _, p := range anew {
		k, err := kernel(written, m, p, linkage[p.Func.Name], declared, checks.orDefault())
		if err != nil {
			return "", fmt.Errorf("PTX of %s: %w", p.Func.Name, err)
		}
		text.WriteString(k)
	}
	return text.String(), nil
}
