// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package pause

import (
	"fmt"
	"strings"
	"testing"
)

// TestLocalParts: of a stack the part below its top is saved, where the top is
// known; of other memory, and around it, all.
func TestLocalParts(t *testing.T) {
	m := parse(t, `kernel @k {
  var local $before 20 align 4
  var local $stack 64 align 16
  var local $odd 20 align 4
  var local $area 32 align 16
  reg b64 %fp %top %a
  reg b32 %x
  stack $stack %fp 16
  stack $odd %fp 0
  stack $area %top 0
entry:
  %fp = mov.u64 $stack
  %top = mov.u64 $area
  bar.sync 0
  st.local.u64 [%top], %top
  bar.sync 0
  %x = ld.local.u32 [%fp]
  bar.sync 0
  exit
}
`)
	p := New(m, m.Funcs[0])
	if len(p.Points) != 3 || p.LocalBytes != 160 {
		t.Fatalf("%d points, %d bytes", len(p.Points), p.LocalBytes)
	}
	for i, want := range []string{
		"0+32 32+64(fp) 96+32 128+32(top)", // a variable that isn't aligned is saved whole
		"0+32 32+64(fp) 96+64",             // nobody reads top any more, and so it isn't saved
		"0+160",
	} {
		var got []string
		end := int64(0)
		for _, part := range p.LocalParts(i + 1) {
			if part.Offset != end {
				t.Errorf("point %d: a part at %d, the one before ends at %d", i+1, part.Offset, end)
			}
			end = part.Offset + part.Size
			s := fmt.Sprintf("%d+%d", part.Offset, part.Size)
			if part.Stack != nil {
				s += "(" + p.Func.Regs[part.Stack.Top].Name + ")"
			}
			got = append(got, s)
		}
		if end != p.LocalBytes || strings.Join(got, " ") != want {
			t.Errorf("point %d: %v up to %d, want %s", i+1, got, end, want)
		}
	}

	stack := p.LocalParts(1)[1]
	for top, want := range map[uint64]int64{
		32:         16, // the first frame, of 16 bytes
		48:         32,
		52:         48, // to a multiple of 16
		80:         64,
		96:         64,
		1 << 63:    64, // a state that somebody made up
		0:          64, // the same: below the stack
		^uint64(0): 64,
	} {
		if got := stack.Used(top); got != want {
			t.Errorf("top at %d: %d bytes, want %d", top, got, want)
		}
	}
	if got := p.LocalParts(3)[0].Used(7); got != 160 {
		t.Errorf("%d bytes of what is no stack", got)
	}
}
