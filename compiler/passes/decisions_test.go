// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package passes

import (
	"slices"
	"strings"
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
)

// decided is a kernel with registers for tables of decisions: %n is a parameter,
// %t the thread's index.
func decided(t *testing.T, body string) *CFG {
	t.Helper()
	m := parse(t, `var const @table 64 align 4
var global @cell 64 align 4
var shared @tile 64 align 4
kernel @k {
  param $n 4 align 4
  reg pred %q %q1
  reg b32 %n %t %x %y %i
  reg b64 %d
entry:
  %n = ld.param.u32 [$n]
  %t = mov.u32 tid.x
`+body+"}\n")
	if err := ir.Verify(m); err != nil {
		t.Fatal(err)
	}
	return NewCFG(m.Funcs[0])
}

// uniform returns the names of blocks, but for "entry", and of registers that are
// uniform, in the order in which they are declared, of those that are asked for.
func uniform(c *CFG, u *Uniformity, asked string) string {
	var list []string
	for b, block := range c.Blocks {
		if u.Block(b) {
			list = append(list, block.Name)
		}
	}
	for r, info := range c.Func.Regs {
		if u.Reg(ir.Reg(r)) {
			list = append(list, "%"+info.Name)
		}
	}
	list = slices.DeleteFunc(list, func(name string) bool { return !slices.Contains(strings.Fields(asked), name) })
	return strings.Join(list, " ")
}

// What is the same for all threads, and what is not though it looks like it. Each
// case has the names that it asks for, and those of them that are uniform.
func TestUniformityDecides(t *testing.T) {
	const fork = "  @%q br own, joined\nown:\n  %x = mov.u32 1\n  br joined\njoined:\n  st.global.u32 [@cell], %x\n  exit\n"
	for name, tc := range map[string]struct{ body, asked, uniform string }{
		"a parameter decides":            {"  %x = mov.u32 0\n  %q = setp.eq.u32 %n, 0\n" + fork, "own joined %q %x", "own joined %q %x"},
		"the thread's index decides":     {"  %x = mov.u32 0\n  %q = setp.eq.u32 %t, 0\n" + fork, "own joined %q %x", "joined"},
		"the block's index decides":      {"  %x = mov.u32 ctaid.y\n  %q = setp.eq.u32 %x, 0\n" + fork, "own joined %q", "own joined %q"},
		"the block's size decides":       {"  %x = mov.u32 ntid.x\n  %q = setp.eq.u32 %x, 0\n" + fork, "own joined %q", "own joined %q"},
		"the lane decides":               {"  %x = mov.u32 laneid\n  %q = setp.eq.u32 %x, 0\n" + fork, "own joined %q", "joined"},
		"the time decides":               {"  %x = mov.u32 clock\n  %q = setp.eq.u32 %x, 0\n" + fork, "own joined %q", "joined"},
		"a sum of both":                  {"  %y = add.u32 %n, %t\n  %q = setp.eq.u32 %y, 0\n" + fork, "own joined %y", "joined"},
		"nothing is left of the index":   {"  %y = mov.u32 %t\n  %y = mov.u32 7\n  %q = setp.eq.u32 %y, 0\n" + fork, "own joined %y", "joined"}, // one answer for a register
		"constants":                      {"  %x = ld.const.u32 [@table+4]\n  %q = setp.eq.u32 %x, 0\n" + fork, "own joined %q", "own joined %q"},
		"constants, each its own":        {"  %d = mul.wide.u32 %t, 4\n  %x = ld.const.u32 [%d]\n  %q = setp.eq.u32 %x, 0\n" + fork, "own joined %q", "joined"},
		"memory that others write":       {"  st.global.u32 [@cell], %t\n  %x = ld.global.u32 [@cell]\n  %q = setp.eq.u32 %x, 0\n" + fork, "own joined %q", "joined"},
		"volatile memory":                {"  %x = ld.volatile.global.u32 [@cell]\n  %q = setp.eq.u32 %x, 0\n" + fork, "own joined %q", "joined"},
		"an atomic":                      {"  %x = atom.global.add.u32 [@cell], 1\n  %q = setp.eq.u32 %x, 0\n" + fork, "own joined %q", "joined"},
		"a vote of the block":            {"  %q1 = setp.eq.u32 %t, 0\n  %q = bar.red_or 0, 0, %q1\n" + fork, "own joined %q %q1", "own joined %q"},
		"a vote of some of the block":    {"  %q1 = setp.eq.u32 %t, 0\n  %q = bar.red_or 0, 64, %q1\n" + fork, "own joined %q", "joined"},
		"a vote at another barrier":      {"  %q1 = setp.eq.u32 %t, 0\n  %q = bar.red_or 1, 0, %q1\n" + fork, "own joined %q", "joined"},
		"a vote of the warp":             {"  %q1 = setp.eq.u32 %n, 0\n  %q = vote.any %q1, 0xffffffff\n" + fork, "own joined %q", "joined"},
		"a guard of its own":             {"  %x = mov.u32 0\n  %q1 = setp.eq.u32 %t, 0\n  @%q1 %x = mov.u32 1\n  %q = setp.eq.u32 %x, 0\n" + fork, "own joined %x", "joined"},
		"a guard of all":                 {"  %y = mov.u32 0\n  %q1 = setp.eq.u32 %n, 0\n  @%q1 %y = mov.u32 1\n  %q = setp.eq.u32 %y, 0\n" + fork, "own joined %y", "own joined %y"},
		"a guarded vote":                 {"  %q1 = setp.eq.u32 %t, 0\n  %q = mov.pred 0\n  @%q1 %q = bar.red_or 0, 0, %q1\n" + fork, "own joined %q", "joined"},
		"a loop that each leaves itself": {"  %i = mov.u32 0\n  br round\nround:\n  %i = add.u32 %i, 1\n  %q = setp.lt.u32 %i, %t\n  @%q br round, behind\nbehind:\n  exit\n", "round behind %i", "behind"},
		"a loop that all leave":          {"  %i = mov.u32 0\n  br round\nround:\n  %i = add.u32 %i, 1\n  %q = setp.lt.u32 %i, %n\n  @%q br round, behind\nbehind:\n  exit\n", "round behind %i", "round behind %i"},
		"a loop that one can leave":      {"  %i = mov.u32 0\n  br round\nround:\n  %i = add.u32 %i, 1\n  %q1 = setp.eq.u32 %t, %i\n  @%q1 br behind, latch\nlatch:\n  %q = setp.lt.u32 %i, %n\n  @%q br round, behind\nbehind:\n  exit\n", "round latch behind %i", "behind"},
		"some have ended":                {"  %q = setp.eq.u32 %t, 0\n  @%q br out, on\nout:\n  exit\non:\n  %x = mov.u32 1\n  exit\n", "out on %x", "%x"}, // nobody else has one
		"all have ended, or none":        {"  %q = setp.eq.u32 %n, 0\n  @%q br out, on\nout:\n  exit\non:\n  %x = mov.u32 1\n  exit\n", "out on %x", "out on %x"},
		"what is read within only":       {"  %q = setp.eq.u32 %t, 0\n  @%q br own, joined\nown:\n  %y = mov.u32 7\n  %x = add.u32 %n, %y\n  br joined\njoined:\n  exit\n", "own joined %y", "joined %y"},
		"what a divergent part computes": {"  %q = setp.eq.u32 %t, 0\n  @%q br own, joined\nown:\n  %y = mov.u32 7\n  br joined\njoined:\n  %x = add.u32 %n, %y\n  exit\n", "own joined %n %x %y", "joined %n"},
	} {
		t.Run(name, func(t *testing.T) {
			c := decided(t, tc.body)
			if got := uniform(c, c.Uniformity(), tc.asked); got != tc.uniform {
				t.Errorf("uniform are %q of %q, want %q", got, tc.asked, tc.uniform)
			}
		})
	}
}

// Who traps ends the launch, so the others are together behind an assertion; who asks
// strictly is told that they are not.
func TestUniformityOfTraps(t *testing.T) {
	for name, tc := range map[string]struct{ body, asked, usual, strict string }{
		"an assertion":           {"  %q = setp.eq.u32 %t, 9\n  @%q br bad, on\nbad:\n  trap\non:\n  %x = mov.u32 1\n  exit\n", "bad on %x", "on %x", "%x"},
		"of all":                 {"  %q = setp.eq.u32 %n, 9\n  @%q br bad, on\nbad:\n  trap\non:\n  %x = mov.u32 1\n  exit\n", "bad on %x", "on %x", "bad on %x"},
		"one that may be passed": {"  %q = setp.eq.u32 %t, 9\n  @%q br bad, on\nbad:\n  %q1 = setp.eq.u32 %t, 8\n  @%q1 br worse, on\nworse:\n  trap\non:\n  %x = mov.u32 1\n  exit\n", "bad worse on %x", "on %x", "%x"},
		"in a loop":              {"  %i = mov.u32 0\n  br round\nround:\n  %i = add.u32 %i, 1\n  %q1 = setp.eq.u32 %t, %i\n  @%q1 br bad, latch\nbad:\n  trap\nlatch:\n  %q = setp.lt.u32 %i, %n\n  @%q br round, on\non:\n  exit\n", "round bad latch on %i", "round latch on %i", ""},
		"nothing but a trap":     {"  %q = setp.eq.u32 %t, 9\n  @%q br one, other\none:\n  trap\nother:\n  trap\n", "one other", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := decided(t, tc.body)
			if got := uniform(c, c.Uniformity(), tc.asked); got != tc.usual {
				t.Errorf("uniform are %q of %q, want %q", got, tc.asked, tc.usual)
			}
			if got := uniform(c, c.StrictUniformity(), tc.asked); got != tc.strict {
				t.Errorf("strictly uniform are %q of %q, want %q", got, tc.asked, tc.strict)
			}
		})
	}
}

// What lives at the barrier, and so has to be saved there, and nothing else.
func TestLivenessDecides(t *testing.T) {
	for name, tc := range map[string]struct{ body, live string }{
		"read later":                {"  %x = mov.u32 1\n  bar.sync 0\n  st.global.u32 [@cell], %x\n  exit\n", "%x"},
		"read before only":          {"  %x = mov.u32 1\n  st.global.u32 [@cell], %x\n  bar.sync 0\n  exit\n", ""},
		"written before it is read": {"  %x = mov.u32 1\n  bar.sync 0\n  %x = mov.u32 2\n  st.global.u32 [@cell], %x\n  exit\n", ""},
		"perhaps written":           {"  %x = mov.u32 1\n  %q = setp.eq.u32 %t, 0\n  bar.sync 0\n  @%q %x = mov.u32 2\n  st.global.u32 [@cell], %x\n  exit\n", "%q %x"},
		"read to be written":        {"  %x = mov.u32 1\n  bar.sync 0\n  %x = add.u32 %x, 1\n  st.global.u32 [@cell], %x\n  exit\n", "%x"},
		"only in itself":            {"  %x = mov.u32 1\n  bar.sync 0\n  %x = add.u32 %x, 1\n  exit\n", "%x"}, // TestGolden's unused.txt: a pass removes it
		"of one of two ways":        {"  %x = mov.u32 1\n  %y = mov.u32 2\n  bar.sync 0\n  %q = setp.eq.u32 %n, 0\n  @%q br one, other\none:\n  st.global.u32 [@cell], %x\n  exit\nother:\n  exit\n", "%n %x"},
		"decides":                   {"  %q = setp.eq.u32 %n, 0\n  bar.sync 0\n  @%q br one, other\none:\n  exit\nother:\n  exit\n", "%q"},
		"an address":                {"  %d = mov.u64 @cell\n  bar.sync 0\n  st.global.u32 [%d], 1\n  exit\n", "%d"},
		"carried around a loop":     {"  %i = mov.u32 0\n  %y = mov.u32 5\n  br round\nround:\n  bar.sync 0\n  %i = add.u32 %i, 1\n  %x = mov.u32 %i\n  %q = setp.lt.u32 %x, %n\n  @%q br round, out\nout:\n  exit\n", "%n %i"},
		"a barrier's own operand":   {"  %q = setp.eq.u32 %t, 0\n  %q1 = bar.red_or 0, 0, %q\n  @%q1 br one, other\none:\n  exit\nother:\n  exit\n", "%q1"},
		"a guard of the other kind": {"  %q = setp.eq.u32 %t, 0\n  bar.sync 0\n  @!%q st.global.u32 [@cell], 1\n  exit\n", "%q"},
	} {
		t.Run(name, func(t *testing.T) {
			c := decided(t, tc.body)
			live := c.Liveness()
			for b, block := range c.Blocks {
				i := slices.IndexFunc(block.Instrs, func(in *ir.Instr) bool { return in.Op == ir.Bar })
				if i < 0 {
					continue
				}
				var got []string
				for _, r := range live.After(b, i).Regs() {
					got = append(got, "%"+c.Func.Regs[r].Name)
				}
				if got := strings.Join(got, " "); got != tc.live {
					t.Errorf("%q live behind the barrier, want %q", got, tc.live)
				}
			}
		})
	}
}

// Which barriers all threads of a block wait at, and which operations a warp has to
// be whole for.
func TestWhoWaits(t *testing.T) {
	for text, whole := range map[string]bool{
		"bar.sync 0": true, "bar.sync.aligned 0": true, "%q1 = bar.red_or 0, 0, %q": true, "%q1 = bar.red_and 0, 0, %q": true,
		"bar.sync 1": false, "bar.sync 0, 64": false, "bar.sync %n": false, "bar.arrive 0, 64": false, "@%q bar.sync 0": false, "%q1 = bar.red_or 0, 32, %q": false,
		"st.global.u32 [@cell], %n": false, "%x = shfl.idx.b32 %t, 0, 31, 0xffffffff": false,
	} {
		c := decided(t, "  %q = setp.eq.u32 %t, 0\n  "+text+"\n  exit\n")
		in := c.Blocks[0].Instrs[3]
		if got := WholeBlock(in); got != whole {
			t.Errorf("%s: all wait: %t, want %t", text, got, whole)
		}
		if got, want := WarpSynchronous(in.Op), in.Op == ir.Shfl; got != want {
			t.Errorf("%s: of a warp: %t, want %t", text, got, want)
		}
	}
}
