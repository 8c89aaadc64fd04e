// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package nvptx_test

import (
	"slices"
	"strings"
	"testing"
)

// under returns behind which label each of a kernel's lines stands that begins like that.
func under(text, prefix string) []string {
	own, _, _ := strings.Cut(text, ".entry k__resume(")
	var labels []string
	label := ""
	for line := range strings.Lines(own) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "$") {
			label = strings.TrimSuffix(line, ":")
		}
		if strings.HasPrefix(line, prefix) {
			labels = append(labels, label)
		}
	}
	return labels
}

// TestSites: which barriers count what was done, so that a check may be made there.
func TestSites(t *testing.T) {
	const begin = "mov.u64 %d1, %d0;\n"
	nested := func(inner string) string {
		return begin + "mov.u32 %r2, 0;\nouter: bar.sync 0; mov.u32 %r1, 0;\n" + inner + "add.u32 %r2, %r2, 1; setp.lt.u32 %q, %r2, 9; @%q bra outer;\n"
	}
	for name, c := range map[string]struct {
		body string
		want []string
	}{
		"a loop, in the last of its rounds": {begin, []string{"$hg_block1_15"}},
		"one of two barriers in a loop": {
			begin + "first: bar.sync 0; st.global.u32 [%d0], %r1; bar.sync 0; add.u32 %r1, %r1, 1; setp.lt.u32 %q, %r1, 9; @%q bra first;\n",
			[]string{"$hg_block1_15", "$hg_block3_15"},
		},
		"both loops": {
			nested("inner: bar.sync 0; add.u32 %r1, %r1, 1; setp.lt.u32 %q, %r1, 9; @%q bra inner;\n"),
			[]string{"$hg_block1", "$hg_block2", "$hg_block5_15"},
		},
		"a loop without barriers in a loop":           {nested("inner: add.u32 %r1, %r1, 1; setp.lt.u32 %q, %r1, 9; @%q bra inner;\n"), []string{"$hg_block1", "$hg_block5_15"}},
		"not outside of loops":                        {begin + "bar.sync 0; st.global.u32 [%d0], %r1;\n", []string{"$hg_block1_15"}},
		"but before a loop that has none":             {begin + "bar.sync 0;\nblind: add.u32 %r1, %r1, 1; setp.lt.u32 %q, %r1, %r0; @%q bra blind;\n", []string{"$hg_block0", "$hg_block8_15"}},
		"one that not every round of a loop comes to": {begin + "first: setp.eq.u32 %q, %r0, 7; @%q bra over; bar.sync 0;\nover: add.u32 %r1, %r1, 1; setp.lt.u32 %q, %r1, 9; @%q bra first;\n", []string{"$hg_block2", "$hg_block5_15"}},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := load(t, kernel("", c.body)).Emit("ptx")
			if err != nil {
				t.Fatal(err)
			}
			got := under(text, "sub.s32 %hg_count,")
			slices.Sort(got)
			if !slices.Equal(got, c.want) {
				t.Errorf("%q, not %q\n%s", got, c.want, text)
			}
		})
	}
}

// TestSunk: what is copied in a loop and needed behind it is copied there, but a state
// has all that lives at its point.
func TestSunk(t *testing.T) {
	loop := func(round string) string {
		return "mov.u64 %d1, %d0; mov.u32 %r2, 0;\nfirst: " + round + " @%q bra first;\nst.global.u32 [%d0], %r1;\n"
	}
	const next = "add.u32 %r2, %r2, 1; setp.lt.u32 %q, %r2, 9;"
	for name, c := range map[string]struct {
		body string
		sunk bool
	}{
		"behind the barrier":       {loop("bar.sync 0; mov.u32 %r1, 77; " + next), true},
		"before it":                {loop("mov.u32 %r1, 77; bar.sync 0; " + next), false},
		"needed in the next round": {loop("bar.sync 0; st.global.u32 [%d0+8], %r1; mov.u32 %r1, 77; " + next), false},
		"needed in this one":       {loop("bar.sync 0; mov.u32 %r1, 77; st.global.u32 [%d0+8], %r1; " + next), false},
		"written again":            {loop("bar.sync 0; mov.u32 %r1, 77; add.u32 %r1, %r0, 1; " + next), false},
	} {
		t.Run(name, func(t *testing.T) {
			p := load(t, kernel("", c.body))
			text, err := p.Emit("ptx")
			if err != nil {
				t.Fatal(err)
			}
			own, _, _ := strings.Cut(text, ".entry k__resume(")
			at := strings.Index(own, ", 77;")
			if at < 0 {
				t.Fatalf("it is gone:\n%s", own)
			}
			prefix := own[strings.LastIndex(own[:at], "mov.u32"):at]
			for _, label := range under(text, prefix+", 77;") {
				inLoop := strings.HasPrefix(label, "$hg_block") || strings.HasPrefix(label, "$hg_after")
				if inLoop == c.sunk {
					t.Errorf("it is copied behind %s\n%s", label, own)
				}
			}
		})
	}
}
