// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package ir

import (
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"
)

func read(tb testing.TB, file string) string {
	tb.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		tb.Fatal(err)
	}
	return string(text)
}

func TestTextIsComplete(t *testing.T) {
	text := read(t, "testdata/all.ir")
	m, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if got := m.String(); got != text {
		t.Fatalf("printed differently:\n%s", firstDifference(got, text))
	}
	again, err := Parse(m.String())
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(m, again) {
		t.Error("the same text made another module")
	}
}

func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range g {
		if i >= len(w) || g[i] != w[i] {
			return "got  " + g[i] + "\nwant " + strings.Join(w[min(i, len(w)):min(i+1, len(w))], "")
		}
	}
	return "got less"
}

func TestEveryModifierHasItsWord(t *testing.T) {
	for op := range numOps {
		words := map[string]modSet{}
		for i := range modifiers {
			mod := &modifiers[i]
			if opTable[op].mods&mod.bit == 0 {
				continue
			}
			// Each value that prints reads back as the same value.
			for v := range 256 {
				var m, back Mods
				if !setRaw(&m, mod.bit, uint8(v)) || !mod.valid(&m) {
					continue
				}
				w := mod.word(&m)
				if w == "" {
					continue
				}
				if first, there := words[w]; there && first != mod.bit {
					t.Errorf("%s: two modifiers have the word %q", op, w)
				}
				words[w] = mod.bit
				if !back.setWord(op, w) || back != m {
					t.Errorf("%s: %q made %+v of %+v", op, w, back, m)
				}
			}
		}
	}
}

// setRaw gives the modifier's field the value v; false: it has none such.
func setRaw(m *Mods, bit modSet, v uint8) bool {
	switch bit {
	case mShape:
		m.Shape = Shape{v, 8, v}
		return v > 0
	case mElems:
		m.Elems = [4]Type{Type(v), F16, F16, F32}
		return Type(v) < numTypes
	}
	for i, b := range fieldOrder {
		if b != bit {
			continue
		}
		f := reflect.ValueOf(m).Elem().Field(i)
		if f.Kind() == reflect.Bool {
			f.SetBool(v == 1)
			return v < 2
		}
		f.SetUint(uint64(v))
		return true
	}
	return false
}

// fieldOrder has the modifiers in the order of Mods' fields.
var fieldOrder = []modSet{
	mRound, mFTZ, mSat, mApprox, mFull, mRelu, mNaN, mXorSign, mHalf, mCarryIn, mCarryOut, mCmp, mBool, mSpace, mVec,
	mVolatile, mOrder, mScope, mAtom, mLeft, mWrap, mShiftAmt, mLut, mPrmt, mTest, mBar, mAligned, mShfl, mVote,
	mMatchAll, mParity, mTrans, mBytes, mShape, mALayout, mBLayout, mFrag, mElems,
}

func TestEveryModifierIsInTheTable(t *testing.T) {
	fields := reflect.TypeFor[Mods]().NumField()
	if fields != len(fieldOrder) || len(modifiers) != fields {
		t.Errorf("Mods has %d fields, the tables %d and %d", fields, len(fieldOrder), len(modifiers))
	}
	for i := range modifiers {
		var m Mods
		for v := uint8(1); v < 3 && m == (Mods{}); v++ {
			setRaw(&m, modifiers[i].bit, v)
		}
		modifiers[i].clear(&m)
		if m != (Mods{}) {
			t.Errorf("modifier %d clears another field", i)
		}
	}
}

func TestSyntaxErrors(t *testing.T) {
	const head = "kernel @k {\n reg b32 %a\n reg pred %p\n var local $v 4 align 4\nb:\n"
	for _, test := range []struct{ text, want string }{
		{"what", "1:1: "},
		{"var global @a", "1:12: "},
		{"var somewhere @a 4 align 4", "1:5: "},
		{"var global @a 4 align x", "1:23: "},
		{"var global @a 4 align 4 = \"0\"", "1:27: "},
		{"var global @a 4 align 4\nvar global @a 4 align 4", "2:12: "},
		{"address 0 @x", "1:1: "},
		{"kernel @k {", "1:11: "},
		{"kernel @k {\n\"}\"\n}", "2:1: "},
		{"kernel k {", "1:8: "},
		{"\x00", "1:1: "},
		{"target \"a", "1:8: "},
		{head + " %a = mov.u32 %b\n}", "6:15: "},
		{head + " %a = mov.u32 somewhere\n}", "6:15: "},
		{head + " %a = move.u32 1\n}", "6:7: "},
		{head + " %a = mov.lt.u32 1\n}", "6:7: "},
		{head + " @%q ret\n}", "6:2: "},
		{head + " br nowhere\n}", "6:5: "},
		{head + " %a = ld.u32 %a\n}", "6:14: "},
		{head + " %a = ld.u32 [%a+]\n}", "6:18: "},
		{head + " call @k($w) -> ()\n}", "6:10: "},
		{head + " call @v() -> ()\n}", "6:7: "},
		{head + " %a = mov.u32 (1+1)\n}", "6:16: "},
		{head + " %a = mov.u32 ($v+18446744073709551616)\n}", "6:19: "},
		{head + " %a = mov.u32 1 2\n}", "6:17: "},
		{head + " ret !1\n}", "6:7: "},
		{head + "b:\n}", "6:1: "},
	} {
		_, err := Parse(test.text)
		if _, ok := errors.AsType[*SyntaxError](err); !ok {
			t.Errorf("%q: error %v", test.text, err)
			continue
		}
		if !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("%q: error %v, not at %s", test.text, err, test.want)
		}
	}
}

func TestDeepNestingIsAnError(t *testing.T) {
	text := "kernel @k {\n reg b32 %a\nb:\n %a = mov.u32 " + strings.Repeat("(", 1<<20)
	if _, err := Parse(text); err == nil {
		t.Error("no error")
	}
}

func TestSharedLayout(t *testing.T) {
	m, err := Parse(read(t, "testdata/shared.ir"))
	if err != nil {
		t.Fatal(err)
	}
	k := m.Func("k")
	l := k.SharedLayout(m)
	want := map[string]int64{"a": 0, "through_table": 8, "own": 16, "called": 32, "dyn": 48}
	got := map[string]int64{}
	for v, at := range l.Offsets {
		got[v.Name] = at
	}
	if !reflect.DeepEqual(got, want) || l.Size != 48 {
		t.Errorf("offsets %v, size %d; want %v, 48", got, l.Size, want)
	}
	if l := k.LocalLayout(); l.Size != 32 || l.Offsets[k.Vars[2]] != 16 {
		t.Errorf("local %+v", l)
	}
}
