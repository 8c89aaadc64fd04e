// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package nvptx_test

import (
	"strings"
	"testing"
)

// TestFirst: where a block decides whether it begins.
func TestFirst(t *testing.T) {
	const shared = ".shared .align 4 .b8 s[64];\n"
	for name, c := range map[string]struct {
		declares, before string
		atBarrier        bool
	}{
		"loads, and stores to shared memory": {shared, "ld.global.u32 %r1, [%d0]; st.shared.u32 [s], %r1; mov.u64 %d1, %d0; meet: bar.sync 0;\n", true},
		"a branch":                           {"", "mov.u64 %d1, %d0; setp.eq.u32 %q, %r0, 3; @%q bra meet; mov.u32 %r1, 2;\nmeet: bar.sync 0;\n", true},
		"a store to global memory":           {"", "mov.u64 %d1, %d0; st.global.u32 [%d0], %r0; bar.sync 0;\n", false},
		"a store to anywhere":                {"", "mov.u64 %d1, %d0; st.u32 [%d0], %r0; bar.sync 0;\n", false},
		"a store on one of two ways":         {"", "mov.u64 %d1, %d0; setp.eq.u32 %q, %r0, 3; @%q bra meet; st.u32 [%d0], %r0;\nmeet: bar.sync 0;\n", false},
		"an atomic":                          {"", "mov.u64 %d1, %d0; red.global.add.u32 [%d0], 1; bar.sync 0;\n", false},
		"a loop":                             {"", "mov.u64 %d1, %d0; mov.u32 %r1, 0; before: add.u32 %r1, %r1, 1; setp.lt.u32 %q, %r1, %r0; @%q bra before; bar.sync 0;\n", false},
		"the barrier is in a loop":           {"", "mov.u64 %d1, %d0;\n", false},
		"one of the first is in a loop":      {"", "mov.u64 %d1, %d0; setp.eq.u32 %q, %r0, 3; @%q bra again; bar.sync 0;\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := load(t, kernel(c.declares, c.before)).Emit("ptx")
			if err != nil {
				t.Fatal(err)
			}
			own, resume, _ := strings.Cut(text, ".entry k__resume(")
			before, _, _ := strings.Cut(own, "$hg_block0:")
			if n := strings.Count(own, "bar.red.or.pred"); n != 1 || strings.Contains(before, "bar.red.or.pred") == c.atBarrier {
				t.Errorf("it decides %d times\n%s", n, own)
			}
			if !strings.Contains(resume, "bar.red.or.pred") {
				t.Error("the other kernel has read its status, and must meet before that changes")
			}
		})
	}
}
