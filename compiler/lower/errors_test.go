// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package lower

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ptx"
)

const head = ".version 8.3\n.target sm_90a\n.address_size 64\n"

// registers are one line, so that a body begins in line 7.
const registers = ".reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<9>; .reg .b64 %d<9>; .reg .f32 %f<9>; .reg .f64 %g<9>; .reg .v2 .b32 %v;"

func body(text string) string {
	return head + ".global .u32 global; .shared .u32 shared; .func away(.param .b32 a); .global .texref picture;\n.entry k(.param .u32 n)\n{ " + registers + "\n" + text + "\nret;\n}\n"
}

func TestErrors(t *testing.T) {
	for name, test := range map[string]struct{ text, want string }{
		"undeclared":         {body("add.u32 %r1, %r2, %x;"), "7:19: %x is not declared"},
		"beyond":             {body("add.u32 %r1, %r2, %r9;"), "7:19: %r9 is not declared"},
		"leading zero":       {body("add.u32 %r1, %r2, %r01;"), "7:19: %r01 is not declared"},
		"out of scope":       {body("{ .reg .b32 x; } mov.u32 x, 1;"), "7:26: x is not declared"},
		"twice":              {body(".reg .b32 a; .reg .b64 a;"), "7:24: a is declared twice"},
		"range twice":        {body(".reg .b32 a<4>; .reg .b64 a<4>;"), "7:27: a is declared twice"},
		"one of a range":     {body(".reg .b32 a<4>; .reg .b64 a3;"), "7:27: a3 is declared twice"},
		"size":               {body("add.u32 %r1, %r2, %d1;"), "7:19: %d1 is declared as .b64 and can't be an operand of type .u32"},
		"result's size":      {body("add.u64 %r1, %d2, %d1;"), "7:9: %r1 is declared as .b32"},
		"float and integer":  {body("add.u32 %r1, %f2, %r1;"), "7:14: %f2 is declared as .f32 and can't be an operand of type .u32"},
		"wide float":         {body("ld.global.f32 %g1, [%d1];"), "7:15: %g1 is declared as .f64"},
		"predicate":          {body("@%r1 ret;"), "7:6: %r1 is declared as .b32 and is no predicate"},
		"no predicate":       {body("selp.b32 %r1, %r2, %r3, %r4;"), "7:25: %r4 is declared as .b32 and is no predicate"},
		"too few":            {body("add.u32 %r1, %r2;"), "7:1: add.u32 has 2 operands, not 3"},
		"none":               {body("setp.eq.u32;"), "7:1: setp.eq.u32 has 0 operands, not 3"},
		"too many":           {body("add.u32 %r1, %r2, %r3, %r4;"), "7:1: add.u32 has 4 operands, not 3"},
		"no type":            {body("add %r1, %r2, %r3;"), "7:1: the type of add is missing"},
		"modifier":           {body("add.wide.u32 %r1, %r2, %r3;"), "7:1: add.wide.u32 can't have the modifier .wide"},
		"unknown modifier":   {body("ld.global.frob.u32 %r1, [%d1];"), "7:1: ld.global.frob.u32 can't have the modifier .frob"},
		"no combination":     {body("lop3.xor.b32 %r1, %r2, %r3, %r4, 1;"), "7:1: lop3.xor.b32 can't have the modifier .xor"},
		"type":               {body("popc.f32 %r1, %r2;"), "7:1: popc.f32 can't have the type .f32"},
		"round an integer":   {body("add.rn.u32 %r1, %r2, %r3;"), "7:1: add.rn.u32 is not for floating point numbers"},
		"no rounding":        {body("fma.f32 %f1, %f2, %f3, %f4;"), "7:1: fma.f32 does not say how it rounds"},
		"no mode":            {body("div.f32 %f1, %f2, %f3;"), "7:1: div.f32 does not say how it rounds"},
		"not approximate":    {body("sin.f32 %f1, %f2;"), "7:1: sin.f32 lacks .approx"},
		"conversion":         {body("cvt.u32.f32 %r1, %f2;"), "7:1: cvt.u32.f32: a conversion to an integer takes"},
		"conversion of int":  {body("cvt.f32.u32 %f1, %r2;"), "7:1: cvt.f32.u32: a conversion from an integer takes"},
		"narrowing":          {body("cvt.f32.f64 %f1, %g2;"), "7:1: cvt.f32.f64: it does not say how it rounds"},
		"half":               {body("mul.u32 %r1, %r2, %r3;"), "7:1: mul.u32 lacks .lo, .hi or .wide"},
		"number for float":   {body("add.f32 %f1, %f2, 1;"), "7:19: 1 is no value of type .f32"},
		"float for number":   {body("add.u32 %r1, %r2, 1.0;"), "7:19: 0d3FF0000000000000 is no value of type .u32"},
		"signed compare":     {body("setp.lo.s32 %p1, %r2, %r3;"), "7:1: setp.lo.s32 is not possible"},
		"order of bits":      {body("setp.lt.b32 %p1, %r2, %r3;"), "7:1: setp.lt.b32 is not possible"},
		"label":              {body("bra NOWHERE;"), "7:5: NOWHERE is no label that can be reached from here"},
		"inner label":        {body("bra IN; { IN: ret; }"), "7:5: IN is no label"},
		"label twice":        {body("A: A: ret;"), "7:4: A is declared twice"},
		"no address":         {body("ld.global.u32 %r1, %d1;"), "7:20: an address in brackets is expected"},
		"small address":      {body("ld.global.u32 %r1, [%r1];"), "7:20: %r1 is declared as .b32 and is no address of .global memory"},
		"space":              {body("ld.shared.u32 %r1, [global];"), "7:20: global is in .global memory and not in .shared"},
		"variable as number": {body("add.f32 %f1, %f2, global;"), "7:19: global is no value of type .f32"},
		"store to const":     {body("st.const.u32 [%d1], %r1;"), "7:1: st.const.u32 is not possible"},
		"vector":             {body("ld.global.v4.u32 {%r1, %r2}, [%d1];"), "7:18: 4 elements are expected, not 2"},
		"component":          {body("mov.b32 %r1, %v.z;"), "7:14: %v has no component .z"},
		"whole vector":       {body("mov.b32 %r1, %v;"), "7:14: %v is a vector"},
		"parts":              {body("mov.b32 %r1, {%h1, %h2, %h3};"), "7:14: a value of type .b32 does not have 3 parts"},
		"atomic type":        {body("atom.global.inc.u64 %d1, [%d2], %d3;"), "7:1: atom.global.inc.u64 can't have the type .u64"},
		"atomic op":          {body("atom.global.u32 %r1, [%d2], %r3;"), "7:1: atom.global.u32 is no operation"},
		"reduction":          {body("red.global.cas.b32 [%d2], %r3, %r4;"), "7:1: red.global.cas.b32 is no reduction"},
		"matrix":             {body("mma.sync.aligned.m16n8k9.row.col.f32.f16.f16.f32 {%f1}, {%r1}, {%r1}, {%f1};"), "7:1: mma.sync.aligned.m16n8k9.row.col.f32.f16.f16.f32 is no matrix product"},
		"fragment":           {body("mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16 {%r1}, {%r3, %r4}, {%r5}, {%r6, %r7};"), "7:50: 2 elements are expected, not 1"},
		"copy":               {body("cp.async.cg.shared.global [shared], [%d1], 4;"), "7:44: cp.async.cg.shared.global can't copy that many bytes"},
		"callee":             {body("call gone, (%r1);"), "7:6: gone is not declared"},
		"arguments":          {body("call away, (%r1, %r2);"), "7:6: away has 1 parameters and 0 results, the call has 2 and 0"},
		"kernel called":      {body("call k, (%r1);"), "7:6: k is a kernel: only functions can be called"},
		"indirect":           {body("call %d1, (%r1);"), "7:6: a call of a register needs a prototype"},
		"branch list":        {body("brx.idx %r1, L;"), "7:14: L is no list of branch targets"},
		"size of array":      {head + ".shared .b8 a[300000];", "4:13: a is too large: .shared has 262144 bytes at most"},
		"absurd size":        {head + ".global .b64 a[4611686018427387904][2];", "4:14: a is too large"},
		"open size":          {head + ".global .b8 a[];", "4:13: the size of a is missing"},
		"initializers":       {head + ".global .b8 a[268435457] = {1};", "4:13: initializers have 268435456 bytes at most"},
		"too many values":    {head + ".global .b8 a[2] = {1, 2, 3};", "4:13: the initializer of a has too many values"},
		"value":              {head + ".global .f32 a = 1;", "4:14: 1 is no value of type .f32"},
		"no such variable":   {head + ".global .u64 a = b;", "4:18: b is not declared"},
		"half an address":    {head + ".global .u32 a = a;", "4:18: an address has 64 bits"},
		"part of an address": {head + ".global .u32 b; .global .b8 a[8] = {0xff(b), 0xff00(b)};", "4:37: an address has 8 bytes, here are 2"},
		"parameters":         {head + ".entry k(.param .b8 a[32765]) { ret; }", "4:21: a kernel's parameters have 32764 bytes at most"},
		"32 bits":            {".version 8.3\n.target sm_90\n.address_size 32\n", "addresses of 32 bits are not supported"},
		"function twice":     {head + ".func f() { ret; } .func f() { ret; }", "4:26: f is declared twice"},
		"shared initialized": {head + ".shared .u32 a = 1;", "4:14: a can't have an initializer"},
	} {
		t.Run(name, func(t *testing.T) {
			src, err := ptx.Parse(test.text)
			if err != nil {
				t.Fatal(err)
			}
			_, err = Lower(src)
			if e := (*ptx.Error)(nil); err == nil || !errors.As(err, &e) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, not %q", err, test.want)
			}
		})
	}
}

// TestNames: %x beside %x<4> is none of %x0 to %x3, and %x4 is another one.
func TestNames(t *testing.T) {
	for _, text := range []string{".reg .b32 %x<4>; .reg .b64 %x, %x4;", ".reg .b64 %x, %x4; .reg .b32 %x<4>;"} {
		m := lower(t, body(text+" cvt.u64.u32 %x, %x3; mov.b64 %x4, %x;"))
		if n := len(m.Func("k").Regs); n != 5 { // with the two of %v
			t.Errorf("%s: %d registers", text, n)
		}
	}
}

// TestNVIDIAOnly wants the reason, in the function and in those that call it,
// and other kernels unharmed.
func TestNVIDIAOnly(t *testing.T) {
	for text, want := range map[string]string{
		"tex.1d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [picture, {%f5}];": "tex.1d.v4.f32.f32: textures and surfaces are not imitated",
		"ld.shared::cluster.u32 %r1, [%r2];":                        "ld.shared::cluster.u32: it needs clusters of blocks",
		"wgmma.fence.sync.aligned;":                                 "wgmma.fence.sync.aligned: it works with four warps' asynchronous matrix unit",
		"mov.u32 %r1, %cluster_ctarank;":                            "mov.u32: %cluster_ctarank: it tells of clusters of blocks",
		"mov.u64 %d1, k;":                                           "mov.u64: a kernel's address is for kernels that launch others",
		"call away, (%r1);":                                         "call: away is in another module",
		"mov.u64 %d1, picture;":                                     "mov.u64: textures and surfaces are not imitated",
		"cp.async.bulk.commit_group;":                               "cp.async.bulk.commit_group: it copies through the tensor memory accelerator",
	} {
		m := lower(t, strings.Replace(body(text), ".func away", ".func inner() {"+registers+text+"} .func away", 1)+
			".entry caller() { call inner; ret; } .entry clean() { ret; }")
		for _, f := range m.Funcs {
			switch f.Name {
			case "k", "inner", "caller":
				if len(f.NVIDIAOnly) == 0 || f.NVIDIAOnly[0].Text != want || f.NVIDIAOnly[0].Pos.Line == 0 {
					t.Errorf("%s: %s has reasons %v, not %q", text, f.Name, f.NVIDIAOnly, want)
				}
			default:
				if len(f.NVIDIAOnly) > 0 {
					t.Errorf("%s: %s has reasons %v", text, f.Name, f.NVIDIAOnly)
				}
			}
		}
	}
}

// FuzzLower lowers anything that is parsed. What is accepted is valid.
func FuzzLower(f *testing.F) {
	for _, pattern := range []string{"testdata/*.ptx", "../ptx/testdata/*.ptx", "../corpus/kernels/*.ptx"} {
		names, err := filepath.Glob(pattern)
		if err != nil {
			f.Fatal(err)
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				f.Fatal(err)
			}
			if len(text) < 16<<10 {
				f.Add(string(text))
			}
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		src, err := ptx.Parse(text)
		if err != nil {
			return
		}
		m, err := Lower(src)
		if err != nil {
			if e := (*ptx.Error)(nil); !errors.As(err, &e) || e.Line < 1 || e.Col < 1 {
				t.Errorf("an error without a place: %v", err)
			}
			return
		}
		if err := ir.Verify(m); err != nil {
			t.Errorf("%v\n%s\n%s", err, text, m)
		}
	})
}

// TestManyNames wants time that grows with the program, and not with its square.
func TestManyNames(t *testing.T) {
	const n = 200000
	src, err := ptx.Parse(head + ".entry k() { " + strings.Repeat("ret; ", n) + "}")
	if err != nil {
		t.Fatal(err)
	}
	m, err := Lower(src)
	if err != nil {
		t.Fatal(err)
	}
	if got := len(m.Funcs[0].Blocks); got != n {
		t.Errorf("%d blocks, not %d", got, n)
	}
}
