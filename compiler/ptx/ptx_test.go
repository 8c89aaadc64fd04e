// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package ptx

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// files are programs to read: our own samples, and the corpus.
func files(t testing.TB) []string {
	t.Helper()
	var list []string
	for _, pattern := range []string{"testdata/*.ptx", "../lower/testdata/*.ptx", "../corpus/kernels/*.ptx"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, found...)
	}
	if len(list) == 0 {
		t.Fatal("there are no samples")
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
		"old":              {".version 5.0\n.target sm_50", "1:10: PTX ISA 5.0 is not known: 6.0 to 8.8 are"},
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
