// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package pause

import (
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
)

// TestWaitsAlways: that blocks wait for one another is known of kernels too that
// can't be paused for other reasons: they must all begin, or none.
func TestWaitsAlways(t *testing.T) {
	const (
		strong = "  %x = ld.volatile.global.u32 [@lock]\n"
		weak   = "  %x = ld.global.u32 [@lock]\n"
	)
	for _, c := range []struct {
		name, before, load, between string
		class                       Class
		waits                       bool
	}{
		{"an mbarrier", "  mbar_init.shared [@s], 1\n", strong, "", RunsToEnd, true},
		{"an mbarrier, without waiting", "  mbar_init.shared [@s], 1\n", weak, "", RunsToEnd, false},
		{"a barrier that only some wait at", "  bar.arrive 1, 64\n", strong, "", RunsToEnd, true},
		{"the heap", "  %p = malloc 8\n", strong, "", RunsToEnd, true},
		{"only NVIDIA's", "", strong, "", NVIDIAOnly, true},
		{"a barrier before the loop", "  bar.sync 0\n", strong, "", RunsToEnd, true},
		{"none", "", strong, "", RunsToEnd, true},
		{"a barrier before a loop that does not wait", "  bar.sync 0\n", weak, "", BarrierPausable, false},
		{"none, and a loop that does not wait", "", weak, "", BackEdgePausable, false},
		{"a barrier in the loop", "", strong, "  bar.sync 0\n", BarrierPausable, true},
		{"a barrier in the loop, a load that the compiler leaves there", "", weak, "  bar.sync 0\n", BarrierPausable, true},
		{"a barrier for some in the loop, and one for all", "", weak, "  bar.sync 1, 32\n", BarrierPausable, true},
	} {
		m := parse(t, `var global @lock 4 align 4
var shared @s 8 align 8
kernel @k {
  reg pred %wait %mine
  reg b32 %x
  reg b64 %p
entry:
`+c.before+"  br round\nround:\n"+c.load+c.between+`  %mine = setp.eq.u32 %x, 0
  %wait = bar.red_or 0, 0, %mine
  @%wait br round, done
done:
  exit
}
`)
		f := m.Funcs[0]
		if c.between == "" { // each thread decides
			loop := f.Blocks[1]
			n := len(loop.Instrs)
			loop.Instrs[n-1].Guard = loop.Instrs[n-3].Dst[0]
			loop.Instrs = append(loop.Instrs[:n-2], loop.Instrs[n-1])
		}
		if c.class == NVIDIAOnly {
			f.NVIDIAOnly = append(f.NVIDIAOnly, ir.Reason{Text: "a test"})
		}
		if p := New(m, f); p.Class != c.class || p.Waits != c.waits {
			t.Errorf("%s: %v, waits %v: %s", c.name, p.Class, p.Waits, p.Reason)
		}
	}
}
