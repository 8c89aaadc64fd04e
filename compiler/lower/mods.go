// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package lower

import (
	"strings"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
)

// maxMods is more than any instruction has.
const maxMods = 32

// modList are an instruction's modifiers. Who lowers an instruction takes those
// that it knows; what is left is an error.
type modList struct {
	words []string
	used  uint32
}

func (m *modList) take(i int) string {
	m.used |= 1 << i
	return m.words[i]
}

// flag takes the word if it is there.
func (m *modList) flag(word string) bool {
	for i, w := range m.words {
		if w == word && m.used&(1<<i) == 0 {
			m.take(i)
			return true
		}
	}
	return false
}

// prefix takes the first word that begins with this, and returns all of it.
func (m *modList) prefix(prefix string) string {
	for i, w := range m.words {
		if m.used&(1<<i) == 0 && strings.HasPrefix(w, prefix) {
			return m.take(i)
		}
	}
	return ""
}

// first returns the first word that nobody took.
func (m *modList) unused() string {
	for i, w := range m.words {
		if m.used&(1<<i) == 0 {
			return w
		}
	}
	return ""
}

// pick takes the first word that is a key of from.
func pick[T any](m *modList, from map[string]T) (value T, word string) {
	for i, w := range m.words {
		if v, ok := from[w]; ok && m.used&(1<<i) == 0 {
			return v, m.take(i)
		}
	}
	return value, ""
}

var rounds = map[string]ir.Round{
	"rn": ir.RN, "rz": ir.RZ, "rm": ir.RM, "rp": ir.RP, "rna": ir.RNA,
	"rni": ir.RNI, "rzi": ir.RZI, "rmi": ir.RMI, "rpi": ir.RPI,
}

var halves = map[string]ir.Half{"lo": ir.Lo, "hi": ir.Hi, "wide": ir.Wide}

var scopes = map[string]ir.Scope{"cta": ir.CTA, "cluster": ir.Cluster, "gpu": ir.GPU, "gl": ir.GPU, "sys": ir.Sys}

var orders = map[string]ir.Order{
	"weak": ir.Weak, "relaxed": ir.Relaxed, "acquire": ir.Acquire, "release": ir.Release, "acq_rel": ir.AcqRel, "sc": ir.SC,
}

var compares = map[string]ir.Cmp{
	"eq": ir.EQ, "ne": ir.NE, "lt": ir.LT, "le": ir.LE, "gt": ir.GT, "ge": ir.GE,
	"lo": ir.LT, "ls": ir.LE, "hi": ir.GT, "hs": ir.GE,
	"equ": ir.EQU, "neu": ir.NEU, "ltu": ir.LTU, "leu": ir.LEU, "gtu": ir.GTU, "geu": ir.GEU, "num": ir.NUM, "nan": ir.NAN,
}

var boolOps = map[string]ir.BoolOp{"and": ir.BoolAnd, "or": ir.BoolOr, "xor": ir.BoolXor}

// typ takes the next type.
func (f *function) typ() ir.Type {
	t, word := pick(&f.mods, types)
	if word == "" {
		f.fail(f.in.Pos, "the type of %s is missing", clip(f.in.Opcode()))
	}
	return t
}

// typeFor takes the next type, which op must be able to have.
func (f *function) typeFor(op ir.Op) ir.Type {
	t := f.typ()
	f.checkType(op, t)
	return t
}

func (f *function) checkType(op ir.Op, t ir.Type) {
	if f.err == nil && !op.Takes(t) {
		f.fail(f.in.Pos, "%s can't have the type .%s", clip(f.in.Opcode()), t)
	}
}

// space takes the state space; Generic if there is none.
func (f *function) space() ir.Space {
	s, _ := pick(&f.mods, memorySpaces)
	return s
}

var memorySpaces = map[string]ir.Space{
	"global": ir.Global, "const": ir.Const, "shared": ir.Shared, "shared::cta": ir.Shared, "local": ir.Local,
	"param": ir.Param, "param::entry": ir.Param, "param::func": ir.Param,
}

// hints takes what says how caches are used, which no result depends on. True:
// a policy stands behind the operands.
func (f *function) hints() bool {
	for f.mods.prefix("L1::") != "" {
	}
	policy := false
	for {
		switch f.mods.prefix("L2::") {
		case "":
			return policy
		case "L2::cache_hint":
			policy = true
		}
	}
}

// float takes the modifiers of floating point arithmetic that are in accept:
// "round", "ftz", "sat", "approx", "full", "NaN", "relu", "xorsign", and checks
// them against the type.
func (f *function) arithmetic(t ir.Type, accept string) ir.Mods {
	var m ir.Mods
	for word := range strings.FieldsSeq(accept) {
		switch word {
		case "round":
			m.Round, _ = pick(&f.mods, rounds)
			if m.Round > ir.RP {
				f.fail(f.in.Pos, "%s can't round like that", clip(f.in.Opcode()))
			}
		case "ftz":
			m.FTZ = f.mods.flag("ftz")
		case "sat":
			m.Sat = f.mods.flag("sat")
		case "approx":
			m.Approx = f.mods.flag("approx")
		case "full":
			m.Full = f.mods.flag("full")
		case "NaN":
			m.NaN = f.mods.flag("NaN")
		case "relu":
			m.Relu = f.mods.flag("relu")
		case "xorsign":
			if m.XorSign = f.mods.flag("xorsign"); m.XorSign && !f.mods.flag("abs") {
				f.fail(f.in.Pos, "%s lacks .abs behind .xorsign", clip(f.in.Opcode()))
			}
		}
	}
	if !t.Float() && (m.Round != ir.NoRound || m.FTZ || m.Approx || m.Full || m.NaN || m.XorSign) {
		f.fail(f.in.Pos, "%s is not for floating point numbers", clip(f.in.Opcode()))
	}
	return m
}
