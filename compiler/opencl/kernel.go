// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package opencl

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
)

// prologue is what stands before all functions: the launch's structure (its
// layout is the runner's too) and types that may alias one another.
const prologue = `#pragma OPENCL FP_CONTRACT OFF
#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable
#pragma OPENCL EXTENSION cl_khr_int64_extended_atomics : enable

struct hg_launch {
	ulong params, state, list, flag, vars, trap;
	uint grid[3], block[3], shared, groups;
};

typedef uchar __attribute__((may_alias)) hg_b8;
typedef ushort __attribute__((may_alias)) hg_b16;
typedef uint __attribute__((may_alias)) hg_b32;
typedef ulong __attribute__((may_alias)) hg_b64;

`

// fp64 is written before code with doubles.
const fp64 = "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n"

// The codes of an error, in the first word of what hg_launch.trap points to.
const (
	TrapInstruction uint64 = 1 // the program's own trap
	trapAssert      uint64 = 2
	trapDeadlock    uint64 = 3
)

// trap writes the end of a thread by an error.
func (e *emitter) trap(code uint64) {
	e.line("hg_trap(hg->trap, %d, hg_b, hg_t);", code)
	e.line("goto hg_end;")
}

// local declarations that a kernel's text may need, with the word that tells.
var locals = []struct{ name, text string }{
	{"hg_params", "const ulong hg_params = hg->params;"},
	{"hg_vars", "__global const ulong *hg_vars = (__global const ulong *)hg->vars;"},
	{"hg_clock", "ulong hg_clock = 0;"},
	{"hg_ph", "uint hg_ph = 0;"},
	{"hg_at", "uint hg_at = 0;"},
	{"hg_none", "bool hg_none = false;"},
	{"hg_round", "uint hg_round = 0;"},
	{"hg_any", "uint hg_any = 0;"},
}

var word = regexp.MustCompile(`\bhg_[a-z]+\b`)

// The beginnings of entries, and of functions that entries call: some compilers
// take no call of a kernel, and PoCL only calls that it can write in place.
const (
	entryHead    = "__kernel void "
	functionHead = "static inline __attribute__((always_inline)) void "
	arguments    = "(__global const struct hg_launch *hg, __local uchar *hg_shared)"
	// An argument in local memory is aligned as its type is, and shared memory has
	// what is aligned to 16 bytes.
	entryArguments = "(__global const struct hg_launch *hg, __local ulong2 *hg_memory)"
	entryLocals    = "__local uchar *hg_shared = (__local uchar *)hg_memory;"
)

// begin begins a function or an entry.
func (e *emitter) begin(head string) {
	if !strings.HasPrefix(head, entryHead) {
		e.line("%s%s", head, arguments)
		e.open("")
		return
	}
	e.line("%s%s", head, entryArguments)
	e.open("")
	e.line(entryLocals)
}

// wrap puts a function's head and declarations around its body.
func (e *emitter) wrap(head, body string) string {
	used := map[string]bool{}
	for _, w := range word.FindAllString(body, -1) {
		used[w] = true
	}
	e.out.Reset()
	e.begin(head)
	e.line("const uint hg_n = hg->block[0] * hg->block[1] * hg->block[2];")
	e.line("const uint hg_t = get_local_id(0) + hg->block[0] * (get_local_id(1) + hg->block[1] * get_local_id(2));")
	e.line("const uint hg_b = hg->list ? ((__global const uint *)hg->list)[get_group_id(0)] : get_group_id(0);")
	for _, l := range locals {
		if used[l.name] {
			e.line("%s", l.text)
		}
	}
	if used["hg_w"] {
		e.line("const uint hg_w = %d;", e.words)
	}
	if used["hg_x"] || used["hg_pf"] {
		e.line("__local uint *hg_pf = (__local uint *)(hg_shared + (%du + ((hg->shared + 15) & ~15u)));", e.shared.Size)
	}
	if used["hg_x"] {
		e.line("__local uint *hg_x = hg_pf + %d;", e.fixedWords())
	}
	if used["hg_local"] {
		e.line("uchar hg_local[%d] __attribute__((aligned(16)));", max(16, e.privateBytes))
	}
	e.registers(body)
	e.out.WriteByte('\n')
	e.out.WriteString(body)
	e.close()
	return e.out.String()
}

var registerName = regexp.MustCompile(`\br[0-9]+\b`)

// registers declares those that the text has, a line for each type and ten of them.
func (e *emitter) registers(body string) {
	used := map[string]bool{}
	for _, r := range registerName.FindAllString(body, -1) {
		used[r] = true
	}
	for _, t := range []ir.Type{ir.Pred, ir.B8, ir.B16, ir.B32, ir.B64, ir.B128} {
		var names []string
		for i, r := range e.f.Regs {
			if name := reg(ir.Reg(i)); r.Type == t && used[name] {
				names = append(names, name+" = 0")
			}
		}
		for len(names) > 0 {
			n := min(10, len(names))
			e.line("%s %s;", ctype(t), strings.Join(names[:n], ", "))
			names = names[n:]
		}
	}
}

// mangle makes a name that C takes, of a kernel's. All have a prefix, so that none
// is a word of the language; different names stay different.
func mangle(name string) string {
	var out strings.Builder
	out.WriteString("k_")
	for _, c := range []byte(name) {
		if c == '_' || c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' {
			out.WriteByte(c)
		} else {
			fmt.Fprintf(&out, "_x%02x_", c)
		}
	}
	return out.String()
}
