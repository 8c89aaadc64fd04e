// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package pause

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
)

// nested is a kernel with so many loops in one another, each with a barrier and a
// counter.
func nested(loops int) string {
	var s strings.Builder
	s.WriteString("kernel @k {\n  reg pred %p\n  reg b32")
	for i := range loops {
		fmt.Fprintf(&s, " %%i%d", i)
	}
	s.WriteString("\nentry:\n  br l0\n")
	for i := range loops {
		fmt.Fprintf(&s, "l%d:\n  bar.sync 0\n", i)
		if i+1 < loops {
			fmt.Fprintf(&s, "  br l%d\n", i+1)
		}
	}
	for i := loops - 1; i >= 0; i-- {
		fmt.Fprintf(&s, "  %%i%d = add.u32 %%i%d, 1\n  %%p = setp.lt.u32 %%i%d, 9\n  @%%p br l%d, e%d\ne%d:\n", i, i, i, i, i, i)
	}
	s.WriteString("  exit\n}\n")
	return s.String()
}

// TestTooManyValues: what points save is quadratic in what a program is, and ends
// somewhere.
func TestTooManyValues(t *testing.T) {
	m := parse(t, nested(100))
	p := New(m, m.Funcs[0])
	if p.Class != BarrierPausable || len(p.Points) != 100 || len(p.Points[99].Values) != 100 {
		t.Errorf("%v: %s", p.Class, p.Reason)
	}
	m = parse(t, nested(400))
	p = New(m, m.Funcs[0])
	if p.Class != RunsToEnd || len(p.Points) != 0 || p.ThreadBytes != 0 || !strings.Contains(p.Reason, "at its 400 points more than 100000 registers") {
		t.Errorf("%v: %s, %d points", p.Class, p.Reason, len(p.Points))
	}
}

// TestTooLarge: a kernel that would take gigabytes to look at is not looked at, and
// so nothing is known of whether its blocks wait.
func TestTooLarge(t *testing.T) {
	m := parse(t, nested(2))
	f := m.Funcs[0]
	f.Regs = append(f.Regs, make([]ir.RegInfo, 1<<16)...)
	f.Blocks = append(f.Blocks, slices.Repeat(f.Blocks[1:2], 1<<14)...)
	if p := New(m, f); p.Class != RunsToEnd || !p.Waits || !strings.HasPrefix(p.Reason, "it is too large: ") {
		t.Errorf("%v: %s, waits %v", p.Class, p.Reason, p.Waits)
	}
}
