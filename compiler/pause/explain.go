// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package pause

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
)

// Explain says of each kernel how it is paused, why, and where: a text for
// people.
func Explain(m *ir.Module, plans []*Plan) string {
	var s strings.Builder
	for _, p := range plans {
		fmt.Fprintf(&s, "%s: %s: %s (%s)\n", p.Func.Name, p.Class, p.Reason, where(m, p.Pos))
		if len(p.Points) == 0 {
			continue
		}
		fmt.Fprintf(&s, "  saves %d bytes of each thread, %d of local memory, and %d of shared memory\n", p.ThreadBytes, p.LocalBytes, p.SharedBytes)
		for i := range p.Points {
			point := &p.Points[i]
			fmt.Fprintf(&s, "  point %d: %s (%s), %d values\n", i+1, point.Kind, where(m, point.Pos()), len(point.Values))
			for _, poll := range point.Polls {
				fmt.Fprintf(&s, "    also for threads at the end of a loop's round (%s)\n", where(m, poll.Pos))
			}
		}
		for _, loop := range p.Kept {
			fmt.Fprintf(&s, "  does not stop at the end of a loop's round (%s): %s\n", where(m, loop.Pos), loop.Why)
		}
	}
	return s.String()
}

// where says where something is: in the program's source if .loc tells, and in
// the PTX.
func where(m *ir.Module, at ir.Pos) string {
	ptx := fmt.Sprintf("PTX line %d", at.Line)
	if at.Line == 0 {
		ptx = "made by a pass"
	}
	if at.File < 1 || int(at.File) > len(m.Files) {
		return ptx
	}
	return fmt.Sprintf("%s:%d, %s", m.Files[at.File-1], at.SrcLine, ptx)
}

// The layout as data. Field names are the format's.
type (
	layoutFile struct {
		Kernels []layoutKernel `json:"kernels"`
	}
	layoutKernel struct {
		Name        string        `json:"name"`
		Class       string        `json:"class"`
		Reason      string        `json:"reason"`
		Line        int32         `json:"line"`
		SharedBytes int64         `json:"sharedBytes"`
		Shared      []layoutVar   `json:"shared"`
		LocalBytes  int64         `json:"localBytes"`
		Local       []layoutVar   `json:"local"`
		ThreadBytes int64         `json:"threadBytes"`
		Points      []layoutPoint `json:"points"`
	}
	layoutVar struct {
		Name   string `json:"name"`
		Offset int64  `json:"offset"`
		Size   int64  `json:"size"`
		// Of a stack: the register with the address up to which it is in use, and how
		// many bytes above that are. Where that register is not saved, all of it is.
		Top   string `json:"top,omitempty"`
		Above int64  `json:"above,omitempty"`
	}
	layoutPoint struct {
		Number int           `json:"number"`
		Kind   string        `json:"kind"`
		Line   int32         `json:"line"`
		Values []layoutValue `json:"values"`
	}
	layoutValue struct {
		Register string `json:"register"`
		Type     string `json:"type"`
		Offset   int64  `json:"offset"`
	}
)

// Layout returns the plans as JSON: what is saved, of which type, at which
// offset, for whoever reads a state without this package. docs/compiler.md has
// the format.
func Layout(plans []*Plan) ([]byte, error) {
	file := layoutFile{Kernels: []layoutKernel{}}
	for _, p := range plans {
		k := layoutKernel{
			Name: p.Func.Name, Class: p.Class.String(), Reason: p.Reason, Line: p.Pos.Line,
			SharedBytes: p.SharedBytes, Shared: p.layoutVars(p.Shared),
			LocalBytes: p.LocalBytes, Local: p.layoutVars(p.Local),
			ThreadBytes: p.ThreadBytes, Points: []layoutPoint{},
		}
		for i := range p.Points {
			k.Points = append(k.Points, p.layoutPoint(i))
		}
		file.Kernels = append(file.Kernels, k)
	}
	text, err := json.MarshalIndent(file, "", "  ")
	if err != nil {
		return nil, err
	}
	return append(text, '\n'), nil
}

func (p *Plan) layoutVars(l *ir.Layout) []layoutVar {
	vars := []layoutVar{}
	for _, v := range l.Vars {
		out := layoutVar{Name: v.Name, Offset: l.Offsets[v], Size: v.Size}
		for _, s := range p.Func.Stacks {
			if s.Var == v {
				out.Top, out.Above = p.Func.Regs[s.Top].Name, s.Above
			}
		}
		vars = append(vars, out)
	}
	return vars
}

func (p *Plan) layoutPoint(i int) layoutPoint {
	point := &p.Points[i]
	out := layoutPoint{Number: i + 1, Kind: point.Kind.String(), Line: point.Pos().Line, Values: []layoutValue{}}
	for _, v := range point.Values {
		out.Values = append(out.Values, layoutValue{p.Func.Regs[v.Reg].Name, v.Type.String(), v.Offset})
	}
	return out
}
