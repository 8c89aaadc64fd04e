// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package nvptx_test

import (
	"encoding/binary"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/lower"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/nvptx"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/passes"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/pause"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ptx"
)

// What our PTX computes, uninterrupted and paused, package corpus/harness tests
// with every kernel of the corpus.

var update = flag.Bool("update", false, "write what comes out into testdata")

func load(t *testing.T, text string) *compiler.Program {
	t.Helper()
	p, err := compiler.Load(text, pause.Prepare)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// printed is the program's PTX, read again.
func printed(t *testing.T, p *compiler.Program) *ir.Module {
	t.Helper()
	text, err := p.Emit("ptx")
	if err != nil {
		t.Fatal(err)
	}
	return read(t, text)
}

func read(t *testing.T, text string) *ir.Module {
	t.Helper()
	src, err := ptx.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	m, err := lower.Lower(src)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestGolden: all that is printed for a loop with a barrier, for one without, and for one
// before a barrier.
// Hints for caches are as they were.
func TestGolden(t *testing.T) {
	for _, name := range []string{"barrier", "backedge", "gather"} {
		in, err := os.ReadFile("testdata/" + name + ".in.ptx")
		if err != nil {
			t.Fatal(err)
		}
		got, err := load(t, string(in)).Emit("ptx")
		if err != nil {
			t.Fatal(err)
		}
		file := "testdata/" + name + ".out.ptx"
		if *update {
			if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s is not what comes out:\n%s", file, got)
		}
	}
}

// kernel is a loop with a barrier, with something in it, in a module with some
// variables and a function.
func kernel(declares, body string) string {
	return ".version 8.0\n.target sm_80\n.address_size 64\n" +
		".global .u32 g[4]; .global .u32 h[4]; .const .u32 c[4]; .global .u64 table[2] = {generic(g), generic(h)};\n" +
		".func f() { ret; }\n.global .u64 calls[1] = {f};\n.visible .entry k(.param .u64 p, .param .u32 n)\n{\n" +
		".reg .pred %p; .reg .pred %q; .reg .b32 %r<4>; .reg .b64 %d<6>;\n" + declares +
		"ld.param.u64 %d0, [p]; ld.param.u32 %r0, [n];\n" + body +
		"again: bar.sync 0; st.u32 [%d1], %r0; st.u32 [%d0], %r0; st.u32 [%d0+4], %r1; sub.u32 %r0, %r0, 1; setp.ne.u32 %p, %r0, 0; @%p bra again;\nret;\n}\n"
}

// TestPausable: what another device's addresses forbid.
func TestPausable(t *testing.T) {
	const shared = ".shared .align 8 .b8 s[64];\n"
	for name, c := range map[string]struct {
		declares, body string
		pausable       bool
	}{
		"a pointer to shared memory in a register": {shared, "mov.u64 %d2, s; cvta.shared.u64 %d1, %d2;\n", true},
		"a pointer to shared memory in memory":     {shared, "mov.u64 %d2, s; cvta.shared.u64 %d1, %d2; st.u64 [%d0], %d1;\n", false},
		"a pointer to a global variable":           {"", "mov.u64 %d2, g; mul.wide.u32 %d3, %r0, 4; add.u64 %d1, %d2, %d3;\n", true},
		"a generic pointer to a const variable":    {"", "mov.u64 %d2, c; cvta.const.u64 %d1, %d2;\n", true},
		"one of two variables":                     {"", "mov.u64 %d1, g; setp.eq.u32 %p, %r0, 3; @%p mov.u64 %d1, h;\n", false},
		"half of a variable's address":             {"", "mov.u64 %d2, g; cvt.u32.u64 %r1, %d2; mov.u64 %d1, %d0;\n", false},
		"a const address that came as a number":    {"", "cvta.to.const.u64 %d1, %d0;\n", false},
		"a variable's address from a table":        {"", "ld.global.u64 %d1, [table+8];\n", false},
		"a word from a table of functions":         {"", "ld.global.u64 %d1, [calls];\n", true},
		"a function's address from a table":        {"", "ld.global.u64 %d1, [calls]; mov.u64 %d2, f; setp.eq.u64 %q, %d1, %d2; @%q mov.u32 %r1, 3;\n", false},
		"a function's address":                     {"", "mov.u64 %d1, f;\n", false},
		"what chooses a function":                  {"", "mov.u64 %d1, %d0; setp.eq.u32 %q, %r0, 3; mov.u64 %d2, f; selp.b64 %d2, %d2, 0, %q; mov.u64 %d3, f; setp.eq.u64 %p, %d2, %d3; @%p add.u32 %r0, %r0, 1;\nfirst: bar.sync 0; @%q st.u32 [%d0], %r0; sub.u32 %r1, %r1, 1; setp.ne.u32 %p, %r1, 0; @%p bra first;\n", true},
		"arithmetic of pairs":                      {"", "mov.u64 %d1, %d0; fma.rz.ftz.f32x2 %d2, %d3, %d4, %d5; st.u64 [%d0], %d2;\n", true},
		"operands that are widened":                {".reg .b16 %h;\n", "mov.u64 %d1, %d0; add.rm.sat.f32.f16 %r1, %h, 0fBF000000;\n", true},
		"low bits of an address":                   {shared, "mov.u64 %d2, s; or.b64 %d2, %d2, 12; cvta.shared.u64 %d1, %d2;\n", true},
		"low bits of an address, masked":           {shared, "mov.u64 %d2, s; and.b64 %d2, %d2, -8; cvta.shared.u64 %d1, %d2;\n", true},
		"bits of an address that differ":           {shared, "mov.u64 %d2, s; xor.b64 %d2, %d2, 16; cvta.shared.u64 %d1, %d2;\n", false},
		"bits of an address alone":                 {shared, "mov.u64 %d2, s; and.b64 %d2, %d2, 255; cvta.shared.u64 %d1, %d2;\n", false},
		"a bit below a larger alignment":           {".shared .align 128 .b8 s[256];\n", "mov.u64 %d2, s; xor.b64 %d2, %d2, 64; cvta.shared.u64 %d1, %d2;\n", true},
		"a pointer to a parameter":                 {"", "mov.u64 %d2, p; cvta.param.u64 %d1, %d2;\n", false},
		"a wmma fragment":                          {".reg .b32 %f<8>;\n", "mov.u64 %d1, %d0; wmma.load.c.sync.aligned.row.m16n16k16.f32 {%f0,%f1,%f2,%f3,%f4,%f5,%f6,%f7}, [%d0], 16; mov.b32 %r1, %f0;\n", false},
		"a cache policy":                           {"", "createpolicy.fractional.L2::evict_first.b64 %d1, 1.0;\n", false},
		"none":                                     {"", "mov.u64 %d1, %d0;\n", true},
	} {
		t.Run(name, func(t *testing.T) {
			p := load(t, kernel(c.declares, c.body))
			if len(p.Plans[0].Points) == 0 {
				t.Fatalf("%v: %s", p.Plans[0].Class, p.Plans[0].Reason)
			}
			if err := nvptx.Pausable(p.Module, p.Plans[0]); (err == nil) != c.pausable {
				t.Error(err)
			}
		})
	}
}

// TestPairs: of arithmetic of pairs, and of operands that are widened, the PTX has the
// parts, which round, flush and saturate as the whole does.
func TestPairs(t *testing.T) {
	p := load(t, kernel(".reg .b16 %h;\n", "mov.u64 %d1, %d0; fma.rz.ftz.f32x2 %d2, %d3, %d4, %d5; st.u64 [%d0], %d2; add.rm.sat.f32.f16 %r1, %h, 0fBF000000;\n"))
	text, err := p.Emit("ptx")
	if err != nil {
		t.Fatal(err)
	}
	_, body, _ := strings.Cut(text, "$hg_block0:")
	for _, want := range []string{"mov.b64 {%r", "fma.rz.ftz.f32 %r", "mov.b64 %rd", "cvt.f32.f16 %r", ", 0fBF000000;", "add.rm.sat.f32 %r"} {
		if !strings.Contains(body, want) {
			t.Errorf("%q is not in\n%s", want, body)
		}
	}
	if n := strings.Count(body, "fma.rz.ftz.f32 "); n != 4 { // of two kernels
		t.Errorf("%d products are printed", n)
	}
}

func TestLaunchBytes(t *testing.T) {
	if n := binary.Size(nvptx.Launch{}); n != nvptx.LaunchBytes {
		t.Errorf("a launch has %d bytes", n)
	}
}

// TestReducible: no loop of the corpus' kernels gets a second beginning, neither
// by the checks nor by the ways to the points.
func TestReducible(t *testing.T) {
	names, err := filepath.Glob("../corpus/kernels/*.ptx")
	if err != nil || len(names) == 0 {
		t.Fatal("there is no corpus", err)
	}
	resumed := 0
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		p := load(t, string(text))
		m := printed(t, p)
		for _, plan := range p.Plans {
			for _, kernel := range []string{plan.Func.Name, nvptx.ResumeName(plan.Func.Name)} {
				f := m.Func(kernel)
				if f == nil {
					continue // it is not paused
				}
				if kernel != plan.Func.Name {
					resumed++
				}
				if n, of := irreducible(f), irreducible(plan.Func); n > of {
					t.Errorf("%s has %d loops with several beginnings, the program %d", kernel, n, of)
				}
			}
		}
	}
	if resumed < 50 {
		t.Errorf("only %d kernels are resumed", resumed)
	}
}

func irreducible(f *ir.Func) int {
	c := passes.NewCFG(f)
	return len(c.Loops(c.Dominators()).Irreducible)
}

// TestCarry: the flag is no register.
func TestCarry(t *testing.T) {
	text := kernel("", "mov.u64 %d1, %d0; add.cc.u32 %r1, %r0, %r0;\n")
	for text, pausable := range map[string]bool{
		text: true, // nobody reads it behind the barrier
		strings.Replace(text, "sub.u32 %r0", "addc.u32 %r2, %r2, 0; sub.u32 %r0", 1): false,
	} {
		p := load(t, text)
		if err := nvptx.Pausable(p.Module, p.Plans[0]); (err == nil) != pausable {
			t.Error(err)
		}
	}
}

// TestParams: the launch's description must have room behind a kernel's own.
func TestParams(t *testing.T) {
	for size, pausable := range map[int]bool{
		4096 - nvptx.LaunchBytes: true, 4096 - nvptx.LaunchBytes + 1: false, 4096: false,
		4097: true, 32764 - nvptx.LaunchBytes - 4: true, 32764 - nvptx.LaunchBytes: false, 32764: false,
	} {
		p := load(t, strings.Replace(kernel("", "mov.u64 %d1, %d0;\n"), ".param .u32 n", fmt.Sprintf(".param .u32 n, .param .b8 more[%d]", size-12), 1))
		if err := nvptx.Pausable(p.Module, p.Plans[0]); (err == nil) != pausable {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
}

// TestAlign: the array that all shared variables are in is aligned as the largest
// of them.
func TestAlign(t *testing.T) {
	text, err := load(t, kernel(".shared .align 128 .b8 s[64]; .shared .b8 t[4];\n", "mov.u64 %d2, s; cvta.shared.u64 %d1, %d2; mov.u64 %d3, t; ld.shared.u8 %r1, [%d3];\n")).Emit("ptx")
	if err != nil || !strings.Contains(text, ".shared .align 128 .b8 hg_shared[80];") {
		t.Errorf("%v\n%s", err, text)
	}
}

// TestNames: a kernel is left as it is where a name of ours is the program's.
func TestNames(t *testing.T) {
	text := kernel("", "mov.u64 %d1, %d0;\n")
	for old, name := range map[string]string{".global .u32 g[4];": "hg_shared", ".func f()": "k__resume", "calls[1]": "hg_launch"} {
		changed := map[string]string{
			"hg_shared": ".global .u32 hg_shared; .global .u32 g[4];", "k__resume": ".visible .entry k__resume() { ret; }\n.func f()", "hg_launch": "hg_launch[1]",
		}[name]
		p := load(t, strings.Replace(text, old, changed, 1))
		for _, plan := range p.Plans {
			if err := nvptx.Pausable(p.Module, plan); plan.Func.Name == "k" && (err == nil || !strings.Contains(err.Error(), name)) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// TestLinkage: a template's kernel may be in several objects.
func TestLinkage(t *testing.T) {
	for _, linkage := range []string{".weak ", ".visible ", ""} {
		text, err := load(t, strings.Replace(kernel("", "mov.u64 %d1, %d0;\n"), ".visible ", linkage, 1)).Emit("ptx")
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range []string{"k(", "k__resume("} {
			if !strings.Contains(text, "\n"+linkage+".entry "+entry) {
				t.Errorf("%q is not how %s is linked:\n%s", linkage, entry, text)
			}
		}
	}
}

// TestVectors: what a recursive function is passed lies on a stack, and is accessed
// there as it was where the call had it.
func TestVectors(t *testing.T) {
	text, err := load(t, `.version 8.0
.target sm_80
.address_size 64
.func (.param .align 16 .b8 r[16]) f(.param .align 16 .b8 a[16], .param .u32 n)
{
	.reg .f32 %f<4>; .reg .pred %p; .reg .b32 %r<2>;
	ld.param.v4.f32 {%f0,%f1,%f2,%f3}, [a]; ld.param.u32 %r0, [n];
	setp.eq.u32 %p, %r0, 0;
	@%p bra done;
	sub.u32 %r0, %r0, 1;
	{ .param .align 16 .b8 x[16]; .param .u32 m; .param .align 16 .b8 y[16];
	st.param.v4.f32 [x], {%f1,%f2,%f3,%f0}; st.param.u32 [m], %r0;
	call (y), f, (x, m);
	ld.param.v4.f32 {%f0,%f1,%f2,%f3}, [y];
	}
done:
	st.param.v4.f32 [r], {%f0,%f1,%f2,%f3};
	ret;
}
.visible .entry k(.param .u64 p, .param .u32 n)
{
	.reg .f32 %f<4>; .reg .b32 %r<2>; .reg .b64 %d<2>;
	ld.param.u64 %d0, [p]; ld.param.u32 %r0, [n];
	ld.global.v4.f32 {%f0,%f1,%f2,%f3}, [%d0];
	bar.sync 0;
	{ .param .align 16 .b8 x[16]; .param .u32 m; .param .align 16 .b8 y[16];
	st.param.v4.f32 [x], {%f0,%f1,%f2,%f3}; st.param.u32 [m], %r0;
	call (y), f, (x, m);
	ld.param.v4.f32 {%f0,%f1,%f2,%f3}, [y];
	}
	st.global.v4.f32 [%d0], {%f0,%f1,%f2,%f3};
	ret;
}
`).Emit("ptx")
	if err != nil {
		t.Fatal(err)
	}
	read(t, text)
	for _, want := range []string{"ld.local.v4.b32 {", "st.local.v4.b32 [", ".entry k__resume("} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
}
