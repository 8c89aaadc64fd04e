// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package ir

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// modSet is a set of modifiers: those that an operation reads.
type modSet uint64

const (
	mRound modSet = 1 << iota
	mFTZ
	mSat
	mApprox
	mFull
	mRelu
	mNaN
	mXorSign
	mHalf
	mCarryIn
	mCarryOut
	mCmp
	mBool
	mSpace
	mVec
	mVolatile
	mOrder
	mScope
	mAtom
	mLeft
	mWrap
	mShiftAmt
	mLut
	mPrmt
	mTest
	mBar
	mAligned
	mShfl
	mVote
	mMatchAll
	mParity
	mTrans
	mBytes
	mShape
	mALayout
	mBLayout
	mFrag
	mElems
)

// modifier is how one field of Mods is read and written in the text form. An
// operation's words are distinct, which a test checks, so that their order does
// not matter to the parser.
type modifier struct {
	bit   modSet
	word  func(*Mods) string       // "" for a value that isn't written
	set   func(*Mods, string) bool // false: not a word of this modifier
	clear func(*Mods)
	valid func(*Mods) bool
}

// modifiers are in the order in which they are written.
var modifiers = []modifier{
	enumMod(mBar, []string{"sync", "arrive", "red_popc", "red_and", "red_or"}, func(m *Mods) *BarOp { return &m.Bar }),
	flagMod(mAligned, "aligned", func(m *Mods) *bool { return &m.Aligned }),
	enumMod(mShfl, []string{"up", "down", "bfly", "idx"}, func(m *Mods) *ShflMode { return &m.Shfl }),
	enumMod(mVote, []string{"all", "any", "uni", "ballot"}, func(m *Mods) *VoteMode { return &m.Vote }),
	flagMod(mMatchAll, "all", func(m *Mods) *bool { return &m.MatchAll }),
	flagMod(mVolatile, "volatile", func(m *Mods) *bool { return &m.Volatile }),
	enumMod(mOrder, []string{"", "relaxed", "acquire", "release", "acq_rel", "sc"}, func(m *Mods) *Order { return &m.Order }),
	enumMod(mScope, []string{"", "cta", "cluster", "gpu", "sys"}, func(m *Mods) *Scope { return &m.Scope }),
	enumMod(mSpace, []string{"", "global", "const", "shared", "local", "param"}, func(m *Mods) *Space { return &m.Space }),
	enumMod(mAtom, []string{"", "add", "and", "or", "xor", "exch", "cas", "min", "max", "inc", "dec"}, func(m *Mods) *AtomOp { return &m.Atom }),
	enumMod(mCmp, []string{"", "eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"}, func(m *Mods) *Cmp { return &m.Cmp }),
	enumMod(mBool, []string{"", "and", "or", "xor"}, func(m *Mods) *BoolOp { return &m.Bool }),
	enumMod(mHalf, []string{"", "lo", "hi", "wide"}, func(m *Mods) *Half { return &m.Half }),
	flagMod(mCarryIn, "cin", func(m *Mods) *bool { return &m.CarryIn }),
	flagMod(mCarryOut, "cout", func(m *Mods) *bool { return &m.CarryOut }),
	flagMod(mLeft, "left", func(m *Mods) *bool { return &m.Left }),
	flagMod(mWrap, "wrap", func(m *Mods) *bool { return &m.Wrap }),
	flagMod(mShiftAmt, "shiftamt", func(m *Mods) *bool { return &m.ShiftAmt }),
	enumMod(mPrmt, []string{"", "f4e", "b4e", "rc8", "ecl", "ecr", "rc16"}, func(m *Mods) *PrmtMode { return &m.Prmt }),
	enumMod(mTest, []string{"", "finite", "infinite", "number", "notanumber", "normal", "subnormal"}, func(m *Mods) *Test { return &m.Test }),
	enumMod(mRound, []string{"", "rn", "rz", "rm", "rp", "rna", "rni", "rzi", "rmi", "rpi"}, func(m *Mods) *Round { return &m.Round }),
	flagMod(mApprox, "approx", func(m *Mods) *bool { return &m.Approx }),
	flagMod(mFull, "full", func(m *Mods) *bool { return &m.Full }),
	flagMod(mFTZ, "ftz", func(m *Mods) *bool { return &m.FTZ }),
	flagMod(mSat, "sat", func(m *Mods) *bool { return &m.Sat }),
	flagMod(mRelu, "relu", func(m *Mods) *bool { return &m.Relu }),
	flagMod(mNaN, "NaN", func(m *Mods) *bool { return &m.NaN }),
	flagMod(mXorSign, "xorsign", func(m *Mods) *bool { return &m.XorSign }),
	flagMod(mParity, "parity", func(m *Mods) *bool { return &m.Parity }),
	numberMod(mLut, "lut_", 16, func(m *Mods) *uint8 { return &m.Lut }),
	numberMod(mBytes, "bytes", 10, func(m *Mods) *uint8 { return &m.Bytes }),
	{
		bit: mShape, clear: func(m *Mods) { m.Shape = Shape{} }, valid: always,
		word: func(m *Mods) string {
			if m.Shape == (Shape{}) {
				return ""
			}
			return fmt.Sprintf("m%dn%dk%d", m.Shape.M, m.Shape.N, m.Shape.K)
		},
		set: func(m *Mods, w string) bool {
			var s Shape
			_, err := fmt.Sscanf(w, "m%dn%dk%d", &s.M, &s.N, &s.K)
			if err != nil || fmt.Sprintf("m%dn%dk%d", s.M, s.N, s.K) != w {
				return false
			}
			m.Shape = s
			return true
		},
	},
	enumMod(mFrag, []string{"", "a", "b", "c", "d"}, func(m *Mods) *Frag { return &m.Frag }),
	enumMod(mALayout, []string{"", "row", "col"}, func(m *Mods) *MatrixLayout { return &m.ALayout }),
	enumMod(mBLayout, []string{"", "b_row", "b_col"}, func(m *Mods) *MatrixLayout { return &m.BLayout }),
	flagMod(mTrans, "trans", func(m *Mods) *bool { return &m.Trans }),
	{
		bit: mElems, clear: func(m *Mods) { m.Elems = [4]Type{} },
		valid: func(m *Mods) bool {
			return !slices.ContainsFunc(m.Elems[:], func(t Type) bool { return t >= numTypes })
		},
		word: func(m *Mods) string {
			if m.Elems == ([4]Type{}) {
				return ""
			}
			words := make([]string, len(m.Elems))
			for i, t := range m.Elems {
				words[i] = typeWord(t)
			}
			return strings.Join(words, "_")
		},
		set: func(m *Mods, w string) bool {
			words := strings.Split(w, "_")
			if len(words) != len(m.Elems) {
				return false
			}
			for i, word := range words {
				t := slices.Index(typeNames[:], word)
				if t < 0 {
					return false
				}
				m.Elems[i] = Type(t)
			}
			return true
		},
	},
	{
		bit: mVec, clear: func(m *Mods) { m.Vec = 0 }, valid: always,
		word: func(m *Mods) string {
			if m.Vec == 0 {
				return ""
			}
			return "v" + strconv.Itoa(int(m.Vec))
		},
		set: func(m *Mods, w string) bool {
			n, err := strconv.ParseUint(strings.TrimPrefix(w, "v"), 10, 8)
			if err != nil || "v"+strconv.FormatUint(n, 10) != w || n == 0 {
				return false
			}
			m.Vec = uint8(n)
			return true
		},
	},
}

func always(*Mods) bool { return true }

func typeWord(t Type) string {
	if t >= numTypes {
		return fmt.Sprintf("?%d", t)
	}
	return typeNames[t]
}

func enumMod[T ~uint8](bit modSet, words []string, at func(*Mods) *T) modifier {
	return modifier{
		bit: bit,
		word: func(m *Mods) string {
			v := *at(m)
			if int(v) >= len(words) {
				return fmt.Sprintf("?%d", v)
			}
			return words[v]
		},
		set: func(m *Mods, w string) bool {
			i := slices.Index(words, w)
			if i < 0 || w == "" {
				return false
			}
			*at(m) = T(i)
			return true
		},
		clear: func(m *Mods) { *at(m) = 0 },
		valid: func(m *Mods) bool { return int(*at(m)) < len(words) },
	}
}

func flagMod(bit modSet, word string, at func(*Mods) *bool) modifier {
	return modifier{
		bit: bit,
		word: func(m *Mods) string {
			if *at(m) {
				return word
			}
			return ""
		},
		set: func(m *Mods, w string) bool {
			if w != word {
				return false
			}
			*at(m) = true
			return true
		},
		clear: func(m *Mods) { *at(m) = false },
		valid: always,
	}
}

func numberMod(bit modSet, prefix string, base int, at func(*Mods) *uint8) modifier {
	return modifier{
		bit:  bit,
		word: func(m *Mods) string { return prefix + strconv.FormatUint(uint64(*at(m)), base) },
		set: func(m *Mods, w string) bool {
			digits, ok := strings.CutPrefix(w, prefix)
			n, err := strconv.ParseUint(digits, base, 8)
			if !ok || err != nil {
				return false
			}
			*at(m) = uint8(n)
			return true
		},
		clear: func(m *Mods) { *at(m) = 0 },
		valid: always,
	}
}

// words returns the modifiers that op reads, as in the text form, each with a
// dot before it.
func (m *Mods) words(op Op) string {
	var s strings.Builder
	for i := range modifiers {
		if mod := &modifiers[i]; opTable[op].mods&mod.bit != 0 {
			if w := mod.word(m); w != "" {
				s.WriteString(".")
				s.WriteString(w)
			}
		}
	}
	return s.String()
}

// setWord sets the modifier of op that word names. False: op has none such.
func (m *Mods) setWord(op Op, word string) bool {
	for i := range modifiers {
		if mod := &modifiers[i]; opTable[op].mods&mod.bit != 0 && mod.set(m, word) {
			return true
		}
	}
	return false
}
