// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package ptx

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// files are programs to read: our own samples, and the corpus.
func files(tb testing.TB) []string {
	tb.Helper()
	var list []string
	for _, pattern := range []string{"testdata/*.ptx", "../lower/testdata/*.ptx", "../corpus/kernels/*.ptx"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			tb.Fatal(err)
		}
		list = append(list, found...)
	}
	if len(list) == 0 {
		tb.Fatal("there are no samples")
	}
	return list
}

// same parses text, prints it, and wants that to be read and printed the same.
func same(t *testing.T, text string) {
	t.Helper()
	m, err := Parse(text)
	if err != nil {
		t.Error(err)
		return
	}
	printed := m.String()
	again, err := Parse(printed)
	if err != nil {
		t.Errorf("what was printed is not read: %v\n%s", err, printed)
		return
	}
	if second := again.String(); second != printed {
		t.Errorf("printed first:\n%s\nthen:\n%s", printed, second)
	}
}

func TestRoundTrip(t *testing.T) {
	for _, name := range files(t) {
		t.Run(filepath.Base(name), func(t *testing.T) {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			same(t, string(text))
		})
	}
}

const head = ".version 8.3\n.target sm_90a\n.address_size 64\n"

// body makes a program with one kernel of text.
func body(text string) string { return head + ".entry k()\n{\n" + text + "\n}\n" }

func TestErrors(t *testing.T) {
	deep := strings.Repeat("{", 100<<20)
	for name, test := range map[string]struct{ text, want string }{
		"empty":            {"", "1:1: PTX begins with .version, not with the end of the text"},
		"old":              {".version 5.0\n.target sm_50", "1:10: PTX ISA 5.0 is not known: 6 to 9 are"},
		"no target":        {".version 8.3\n", "2:1: .target is expected"},
		"unknown":          {body("frobnicate.b32 %r1;"), `6:1: the instruction "frobnicate.b32" is not known`},
		"unknown part":     {body("cp.frob [%r1], 2;"), `6:1: the instruction "cp.frob" is not known`},
		"no semicolon":     {body("ret ;ret"), `7:1: an operand is expected, not "}"`},
		"truncated":        {head + ".entry k()\n{\nret;", "5:1: the block has no end"},
		"comment":          {head + "/* ...", "4:1: the comment has no end"},
		"string":           {head + ".file 1 \"a", "4:9: the string has no end"},
		"number":           {body("mov.u64 %rd1, 18446744073709551616;"), "6:15: \"18446744073709551616\" is no number of 64 bits"},
		"float":            {body("mov.f32 %f1, 0f3F8;"), "6:14: \"0f3F8\" is no floating point number: 8 hexadecimal digits"},
		"division by zero": {body("mov.u64 %rd1, 1/0;"), "6:16: this can't be computed: 1 / 0"},
		"alignment":        {head + ".global .align 3 .b8 a;", "4:18: an alignment is a power of two"},
		"type":             {head + ".global .b33 a;", `4:9: ".b33" is no type`},
		"character":        {body("mov.b32 %r1, `;"), "6:14: '`' has no meaning here"},
		"scopes":           {head + ".entry k()\n" + deep, "5:201: nested deeper than 200"},
		"parentheses":      {body("mov.b32 %r1, " + strings.Repeat("(", 1<<20)), "nested deeper than 200"},
		"signs":            {body("mov.b32 %r1, " + strings.Repeat("-", 1<<20)), "nested deeper than 200"},
		"vectors":          {body("mov.b32 %r1, " + deep), "nested deeper than 200"},
		"initializers":     {head + ".global .b8 a[1] = " + deep, "nested deeper than 200"},
		"choices":          {body("mov.b32 %r1, " + strings.Repeat("1?1:", 1<<20) + "1;"), "nested deeper than 200"},
		"section":          {head + ".section .debug_info " + deep[:1<<20], "4:1: the section has no end"},
		"long name":        {body(strings.Repeat("x", 1000) + " 1;"), `the instruction "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx..." is not known`},
		"extern body":      {head + ".extern .func f() { ret; }", "4:1: f is .extern and has a body"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse(test.text)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, not %q", err, test.want)
			}
		})
	}
}

// TestNVIDIAOnly reads what runs on NVIDIA's devices only: all but ret.
func TestNVIDIAOnly(t *testing.T) {
	text, err := os.ReadFile("testdata/nvidia.ptx")
	if err != nil {
		t.Fatal(err)
	}
	m, err := Parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range m.Decls {
		f, ok := d.(*Func)
		if !ok || f.Body == nil {
			continue
		}
		for _, s := range f.Body.Stmts {
			in, ok := s.(*Instr)
			if !ok || in.Op == "ret" {
				continue
			}
			if class, reason := Classify(in.Op, in.Mods); class != NVIDIAOnly || reason == "" {
				t.Errorf("%s has class %d, reason %q", in, class, reason)
			}
		}
	}
}

// TestPositions follows .loc, which belongs to one function.
func TestPositions(t *testing.T) {
	m, err := Parse(head + `.file 3 "a.cu"
.entry k() {
	ret;
	.loc 3 77 5
	ret;
}
.entry l() { ret; }
`)
	if err != nil {
		t.Fatal(err)
	}
	var got []Pos
	for _, d := range m.Decls {
		for _, s := range d.(*Func).Body.Stmts {
			if in, ok := s.(*Instr); ok {
				got = append(got, in.Pos)
			}
		}
	}
	want := []Pos{{Line: 6, Col: 2}, {Line: 8, Col: 2, File: 3, SrcLine: 77}, {Line: 10, Col: 14}}
	if !slices.Equal(got, want) {
		t.Errorf("instructions are at %v, not at %v", got, want)
	}
	if m.Files[0] != (File{Number: 3, Name: "a.cu"}) {
		t.Errorf("files %v", m.Files)
	}
}

func TestConstants(t *testing.T) {
	for text, want := range map[string]string{
		"1 + 2 * 3":                     "7",
		"(1 + 2) * 3 - -1":              "10",
		"10%3":                          "1",
		"-7 / 2":                        "-3",
		"-7 % 3":                        "-1",
		"-1 >> 1":                       "-1",
		"-1U >> 63":                     "1U",
		"1 << 63":                       "9223372036854775808U",
		"1 << 64":                       "0",
		"~0":                            "-1",
		"!5":                            "0",
		"3 < 2 || 2 <= 2 && 1 != 1":     "0",
		"-1 < 0U":                       "0",
		"0x1F & 0b1010 | 017 ^ 1":       "14",
		"5 > 4 ? 1 : 1 / 1":             "1",
		"(.u64) -1":                     "18446744073709551615U",
		"(.s64) 2.9":                    "2",
		"1.5 + 1":                       "0d4004000000000000",
		"-0f3F800000":                   "0fBF800000",
		"1.0 < 2.0":                     "1",
		"WARP_SZ * 2":                   "64",
		"0x7fffffffffffffff + 1":        "9223372036854775808U",
		"9223372036854775808 - 1":       "9223372036854775807U",
		"1e3":                           "0d408F400000000000",
		"0dFFF0000000000000":            "0dFFF0000000000000",
		"(-9223372036854775807 - 1)/-1": "9223372036854775808U",
	} {
		m, err := Parse(body("mov.b64 %rd1, " + text + ";"))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		in := m.Decls[0].(*Func).Body.Stmts[0].(*Instr)
		if got := in.Args[1].Num.String(); got != want {
			t.Errorf("%s is %s, not %s", text, got, want)
		}
	}
}

// FuzzParse reads anything. What is accepted is printed and read again.
func FuzzParse(f *testing.F) {
	for _, name := range files(f) {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		if len(text) < 16<<10 {
			f.Add(string(text))
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		m, err := Parse(text)
		if err != nil {
			if e := (*Error)(nil); !errors.As(err, &e) || e.Line < 1 || e.Col < 1 {
				t.Errorf("an error without a place: %v", err)
			}
			return
		}
		printed := m.String()
		again, err := Parse(printed)
		if err != nil {
			t.Fatalf("what was printed is not read: %v\n%s", err, printed)
		}
		if second := again.String(); second != printed {
			t.Fatalf("printed first:\n%s\nthen:\n%s", printed, second)
		}
	})
}
