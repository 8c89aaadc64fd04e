// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package lower

import (
	"strings"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ptx"
)

// sreg is a special register: what it is, its type, or why it is NVIDIA's alone.
type sreg struct {
	reg ir.Sreg
	typ ir.Type
	why string
}

var sregs = makeSregs()

func makeSregs() map[string]sreg {
	m := map[string]sreg{}
	for i, axis := range []string{"x", "y", "z"} {
		for j, name := range []string{"%tid", "%ntid", "%ctaid", "%nctaid"} {
			m[name+"."+axis] = sreg{reg: ir.Sreg(3*j + i), typ: ir.U32}
		}
		for _, name := range []string{"%clusterid", "%nclusterid", "%cluster_ctaid", "%cluster_nctaid"} {
			m[name+"."+axis] = sreg{why: "it tells of clusters of blocks", typ: ir.U32}
		}
	}
	for name, r := range map[string]ir.Sreg{
		"laneid": ir.LaneID, "warpid": ir.WarpID, "nwarpid": ir.NWarpID, "smid": ir.SMID, "nsmid": ir.NSMID,
		"lanemask_eq": ir.LanemaskEQ, "lanemask_le": ir.LanemaskLE, "lanemask_lt": ir.LanemaskLT,
		"lanemask_ge": ir.LanemaskGE, "lanemask_gt": ir.LanemaskGT,
		"clock": ir.Clock, "clock_hi": ir.ClockHi, "globaltimer_lo": ir.GlobalTimerLo, "globaltimer_hi": ir.GlobalTimerHi,
		"total_smem_size": ir.TotalSmemSize, "dynamic_smem_size": ir.DynamicSmemSize,
	} {
		m["%"+name] = sreg{reg: r, typ: ir.U32}
	}
	for name, r := range map[string]ir.Sreg{"clock64": ir.Clock64, "globaltimer": ir.GlobalTimer, "gridid": ir.GridID} {
		m["%"+name] = sreg{reg: r, typ: ir.U64}
	}
	for name := range strings.FieldsSeq("cluster_ctarank cluster_nctarank is_explicit_cluster aggr_smem_size") {
		m["%"+name] = sreg{why: "it tells of clusters of blocks", typ: ir.U32}
	}
	for name := range strings.FieldsSeq("current_graph_exec reserved_smem_offset_begin reserved_smem_offset_end reserved_smem_offset_cap reserved_smem_offset_0 reserved_smem_offset_1") {
		m["%"+name] = sreg{why: "it tells of what only NVIDIA's driver has", typ: ir.U64}
	}
	for i := range 8 {
		m["%pm"+itoa(i)] = sreg{why: "it counts what only NVIDIA's devices have", typ: ir.U32}
		m["%pm"+itoa(i)+"_64"] = sreg{why: "it counts what only NVIDIA's devices have", typ: ir.U64}
	}
	for i := range 32 {
		m["%envreg"+itoa(i)] = sreg{why: "it has what only NVIDIA's driver sets", typ: ir.U32}
	}
	return m
}

func sregName(o *ptx.Operand) string {
	if o.Suffix == "" || o.Name[0] != '%' {
		return o.Name
	}
	return o.Name + "." + o.Suffix
}

// special reads a special register as a value of type t: the lower bits of it,
// or with zeroes above.
func (f *function) special(o *ptx.Operand, s sreg, t ir.Type) ir.Operand {
	if s.why != "" {
		f.nvidiaOnly(o.Name + ": " + s.why)
		return ir.Imm(0)
	}
	if t.Float() || t.Size() < 2 || t.Size() > 8 {
		f.failAt(o, "%s is no value of type .%s", clip(sregName(o)), t)
		return ir.Imm(0)
	}
	sr := ir.Operand{Kind: ir.SregOperand, Sreg: s.reg, Reg: ir.NoReg}
	if f.in.Op == "mov" && t.Size() == s.typ.Size() {
		return sr
	}
	r := f.temp(s.typ)
	f.emit(&ir.Instr{Op: ir.Mov, Type: s.typ, Dst: []ir.Reg{r}, Args: []ir.Operand{sr}})
	if t.Size() == s.typ.Size() {
		return ir.R(r)
	}
	other := f.temp(t)
	unsigned := map[int]ir.Type{2: ir.U16, 4: ir.U32, 8: ir.U64}[t.Size()]
	f.emit(&ir.Instr{Op: ir.Cvt, Type: unsigned, Type2: s.typ, Dst: []ir.Reg{other}, Args: []ir.Operand{ir.R(r)}})
	return ir.R(other)
}
