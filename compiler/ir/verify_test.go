// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package ir

import (
	"strings"
	"testing"
)

func TestVerifyAccepts(t *testing.T) {
	for _, file := range []string{"testdata/all.ir", "testdata/shared.ir"} {
		m, err := Parse(read(t, file))
		if err != nil {
			t.Fatal(err)
		}
		if err := Verify(m); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// header declares what the lines of the tests below use.
const header = `var global @g 8 align 8
var shared @sh 8 align 8
kernel @k {
  param $p 8 align 8
  var local $l 8 align 8
  var param $a4 4 align 4
  reg pred %p %q
  reg b16 %h
  reg b32 %r %s %t %u
  reg b64 %x %y
entry:
  br body
body:
`

func TestVerifyInstructions(t *testing.T) {
	for _, test := range []struct{ line, want string }{
		// What is right.
		{"%r = add.s32 %s, 0xffffffff", ""},
		{"%x = mul.wide.u32 %r, %s", ""},
		{"%x = mad.wide.s32 %r, 4, %y", ""},
		{"%r = ld.global.u8 [%x]", ""},
		{"%r = ld.shared.u32 [@sh+4]", ""},
		{"%r = ld.u32 [@g]", ""},
		{"%r = cvt.u32.u8 %h", ""},
		{"%x = mov.u64 $l", ""},
		{"%r = mov.u32 @sh", ""},
		{"%x = cvta.local $l", ""},
		{"%x = mov.u64 clock64", ""},
		{"%x = pack.b64 %r, %s", ""},
		{"%r, _ = unpack.b64 %x", ""},
		{"%p = and.pred %p, !%q", ""},
		{"%p = setp.eq.and.b32 %r, 1, %q", ""},
		{"%p = bar.red_and 0, 0, !%p", ""},
		{"%r, %s, %t, %u = wmma_mma.m16n16k16.row.b_col.f16_f16_f16_f16 " + strings.Repeat("%r, ", 19) + "%r", ""},
		{"%r, %s, %t, %u = mma.m16n8k8.row.b_col.f32_tf32_tf32_f32 " + strings.Repeat("%r, ", 9) + "%r", ""},
		{"%x, %y = mma.m8n8k4.row.b_col.f64_f64_f64_f64 %x, %x, %x, %x", ""},
		{"%r = wmma_load.m16n16k16.c.row.f64 [%x], 16", "1 registers"},
		{"%x, %y = wmma_load.m8n8k4.c.row.f64 [%x], 16", ""},

		// What is wrong.
		{"nop", "no operation"},
		{"exit", "a block's last instruction"},
		{"%r = add.s32 %s, %x", "argument 1: a register of type b64"},
		{"%x = add.s32 %s, %r", "result 0"},
		{"%r = add.s16 %s, %r", "result 0"},
		{"%h = add.s16 %h, 65536", "out of range"},
		{"%r = add.s32 %s", "1 arguments"},
		{"%r = add.pred %s, %r", "not of type"},
		{"%r = add %s, %r", "not of type none"},
		{"%r = add.cout.u32 %r, %s", "modifiers"},
		{"%r, %p = add.u32 %r, %s", "modifiers"},
		{"%r = mul.u32 %r, %s", "which part"},
		{"%x = mul.wide.u64 %x, %y", "type"},
		{"%p = setp.s32 %r, 1", "no comparison"},
		{"%p = setp.lt.b32 %r, 1", "bits have no order"},
		{"%p = setp.ltu.s32 %r, 1", "floating point"},
		{"@%r %r = mov.u32 1", "the guard"},
		{"%r = mov.u32 !%p", "a register of type pred"},
		{"%p = mov.pred 2", "out of range"},
		{"%r = mov.u32 clock64", "a special register"},
		{"%r = add.u32 tid.x, 1", "a special register"},
		{"%r = mov.u32 $l", ""},
		{"%r = mov.u32 @g", "an address of 4 bytes"},
		{"%r = mov.u32 @k", "a function's address"},
		{"%r = ld.global.u32 [@sh]", "a variable in shared"},
		{"%r = ld.u32 [@sh]", "a variable in shared"},
		{"%r = ld.global.u32 [%r]", "argument 0"},
		{"%h = ld.global.u32 [%x]", "result 0"},
		{"%r = ld.global.v2.u32 [%x]", "1 results for a vector of 2"},
		{"%r = ld.global.v3.u32 [%x]", "a vector of 3"},
		{"st.const.u32 [%x], %r", "constants"},
		{"%r = atom.global.add.u32 [%x], 1, 2", "3 arguments"},
		{"%r = atom.local.add.u32 [%x], 1", "not in local"},
		{"%r = atom.global.and.f32 [%x], 1", "not on floating"},
		{"%r = atom.global.u32 [%x], 1", "no operation"},
		{"%x = cvta %y", "no state space"},
		{"%x = cvta.shared @g", ""},
		{"%x = cvta.global @sh", "a variable in shared"},
		{"bar.sync 0, 0, %p", "operands of a reduction"},
		{"bar.arrive 0", "it needs"},
		{"%r = bar.red_and 0, 0, %p", "a result"},
		{"%r = vote.all %p, 1", "a result"},
		{"%r, %p = match.b32 %s, 1", "an operand"},
		{"call @k() -> ()", "it can't be called"},
		{"%r = mma.m16n8k16.row.b_col.f32_f16_f16_f32 %r", "registers"},
		{"%r = mma.m16n8k16 %r", "registers"},
	} {
		m, err := Parse(header + test.line + "\n  exit\n}\n")
		if err != nil {
			t.Errorf("%s: %v", test.line, err)
			continue
		}
		err = Verify(m)
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: error %v, want %q", test.line, err, test.want)
		}
	}
}

func TestVerifyModules(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"var local @a 4 align 4", "no variables in"},
		{"var global @a 4 align 3", "alignment"},
		{"var global @a 4 align 4 = \"00\"", "initial value"},
		{"var shared @a 1 align 4 = \"00\"", "initial value"},
		{"var global @a 4 align 4 = \"00000000\"\n address 0 @a", "an address at"},
		{"var global @a 9223372036854775807 align 4", "a size"},
		{"kernel @k {\n}", "without instructions"},
		{"func @f {\n}", ""},
		{"func @f {\na:\nb:\n ret\n}", "without instructions"},
		{"func @f {\na:\n br a\n}", "the entry"},
		{"func @f {\na:\n br b, b\nb:\n ret\n}", "2 targets"},
		{"func @f {\n reg pred %p\na:\n @%p br b\nb:\n ret\n}", "1 targets"},
		{"func @f {\n reg pred %p\na:\n @%p ret\n}", "only br"},
		{"func @f {\n reg u32 %p\na:\n ret\n}", "has the type"},
		{"func @f {\n param $a 4 align 4 at 4\na:\n ret\n}", "offsets"},
		{"kernel @f {\n param $a 4 align 4 at 2\na:\n ret\n}", "at offset"},
		{"kernel @f {\n result $a 4 align 4\na:\n ret\n}", "no results"},
		{"func @g {\n param $a 8 align 8\n}\nfunc @f {\n var param $x 4 align 4\na:\n call @g($x) -> ()\n ret\n}", "not what @g"},
		{"func @g {\n param $a 4 align 4\n}\nfunc @f {\n var local $x 4 align 4\na:\n call @g($x) -> ()\n ret\n}", "in param"},
		{"func @g {\n}\nfunc @f {\n reg b64 %x\na:\n call %x() -> () of @g\n ret\n}", ""},
	} {
		m, err := Parse(test.text)
		if err != nil {
			t.Errorf("%q: %v", test.text, err)
			continue
		}
		err = Verify(m)
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%q: error %v, want %q", test.text, err, test.want)
		}
	}
}

// TestVerifyWhatNoTextCanSay builds what only a pass with a bug would.
func TestVerifyWhatNoTextCanSay(t *testing.T) {
	for name, spoil := range map[string]func(*Module){
		"no instruction":   func(m *Module) { m.Funcs[0].Blocks[0].Instrs[0] = nil },
		"no function":      func(m *Module) { m.Funcs[0] = nil },
		"no variable":      func(m *Module) { m.Vars[0] = nil },
		"no block":         func(m *Module) { m.Funcs[0].Blocks[0] = nil },
		"no target":        func(m *Module) { m.Funcs[0].Blocks[0].Instrs[0].Targets[0] = nil },
		"a stranger":       func(m *Module) { m.Funcs[0].Blocks[0].Instrs[0].Targets[0] = &Block{Name: "x"} },
		"operation":        func(m *Module) { m.Funcs[0].Blocks[0].Instrs[0].Op = 255 },
		"register":         func(m *Module) { m.Funcs[0].Blocks[1].Instrs[0].Dst[0] = 99 },
		"type":             func(m *Module) { m.Funcs[0].Blocks[1].Instrs[0].Type = 200 },
		"modifier":         func(m *Module) { m.Funcs[0].Blocks[1].Instrs[0].Mods.Round = 99 },
		"operand":          func(m *Module) { m.Funcs[0].Blocks[1].Instrs[0].Args[0].Kind = 9 },
		"variable of none": func(m *Module) { m.Funcs[0].Blocks[1].Instrs[0].Args[0] = Operand{Kind: VarOperand, Reg: NoReg} },
		"function of none": func(m *Module) { m.Funcs[0].Blocks[1].Instrs[0].Args[0] = Operand{Kind: FuncOperand, Reg: NoReg} },
		"special register": func(m *Module) {
			m.Funcs[0].Blocks[1].Instrs[0].Args[0] = Operand{Kind: SregOperand, Sreg: 99, Reg: NoReg}
		},
		"parameter":          func(m *Module) { m.Funcs[0].Params[0] = nil },
		"name of a register": func(m *Module) { m.Funcs[0].Regs[0].Name = "a b" },
		"same block twice":   func(m *Module) { m.Funcs[0].Blocks = append(m.Funcs[0].Blocks, m.Funcs[0].Blocks[0]) },
		"fits no module":     func(m *Module) { m.Vars[0].Addresses = []Address{{Var: &Var{}}} },
	} {
		m, err := Parse(header + "  %r = add.u32 %r, 1\n  exit\n}\n")
		if err != nil {
			t.Fatal(err)
		}
		spoil(m)
		if Verify(m) == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// FuzzParse: no text makes Parse or Verify panic, and what Parse takes prints as
// a text that makes the same text again.
func FuzzParse(f *testing.F) {
	f.Add(read(f, "testdata/all.ir"))
	f.Add(read(f, "testdata/shared.ir"))
	f.Add(header + "  %r, %s = mma.m16n8k16.row.b_col.f32_f16_f16_f32 %r\n  exit\n}\n")
	f.Fuzz(func(t *testing.T, text string) {
		m, err := Parse(text)
		if err != nil {
			return
		}
		if Verify(m) != nil {
			return
		}
		again, err := Parse(m.String())
		if err != nil {
			t.Fatalf("its own text: %v\n%s", err, m)
		}
		if again.String() != m.String() {
			t.Errorf("printed differently:\n%s", firstDifference(again.String(), m.String()))
		}
		for _, fn := range m.Funcs {
			fn.SharedLayout(m)
			fn.LocalLayout()
		}
	})
}

func TestVerifyStacks(t *testing.T) {
	for stack, want := range map[string]string{
		"$l %x 16":             "",
		"$l %r 16":             "a stack that is none", // 32 bits
		"$a4 %x 16":            "a stack that is none", // not local
		"$sh %x 0":             "$sh is not there",
		"$l %z 0":              "%z is not there",
		"$l %x -1":             "",
		"$l %x 99999999999999": "",
	} {
		text := strings.Replace(header, "entry:\n", "  stack "+stack+"\nentry:\n", 1) + "  exit\n}\n"
		m, err := Parse(text)
		if err == nil {
			err = Verify(m)
		}
		right := stack == "$l %x 16"
		if right != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", stack, err)
		}
	}
}
