// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package opencl

import (
	"fmt"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
)

// mbarrier writes an operation on an mbarrier, 8 bytes of shared memory that
// docs/ir.md describes.
func (e *emitter) mbarrier(in *ir.Instr) {
	if in.Op == ir.MbarPending {
		e.set(in.Dst[0], ir.B32, fmt.Sprintf("(uint)(%s >> 20) & 0xfffffu", e.bits(in.Args[0], ir.B64)))
		return
	}
	// It is in shared memory, whatever way it is pointed at.
	e.line("volatile __local ulong *p = (volatile __local ulong *)(hg_shared + (uint)%s);", paren(e.address(in)))
	switch in.Op {
	case ir.MbarInit:
		e.line("ulong n = %s & 0xfffffu;", e.bits(in.Args[1], ir.B32))
		e.line("*p = n << 20 | n;")
	case ir.MbarInval:
		e.line("*p = 0;")
	case ir.MbarArrive, ir.MbarArriveDrop:
		count := "1"
		if len(in.Args) > 1 {
			count = e.bits(in.Args[1], ir.B32)
		}
		e.line("%s;", fence)
		e.line("ulong v = hg_arrive(p, %s, %t);", count, in.Op == ir.MbarArriveDrop)
		if len(in.Dst) > 0 {
			e.set(in.Dst[0], ir.B64, "v")
		}
	case ir.MbarTest, ir.MbarTry:
		phase := fmt.Sprintf("%s >> 63", e.bits(in.Args[1], ir.B64))
		if in.Mods.Parity {
			phase = fmt.Sprintf("(%s & 1)", e.bits(in.Args[1], ir.B32))
		}
		e.set(in.Dst[0], ir.Pred, fmt.Sprintf("*p >> 63 != %s", phase))
		e.line("%s;", fence)
	}
}
