// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package interp

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
)

// formatted formats with arguments as a program has them in memory.
func formatted(t *testing.T, format string, args ...any) (string, int) {
	t.Helper()
	var mem []byte
	strs := map[uint64]string{}
	for _, a := range args {
		switch v := a.(type) {
		case int:
			mem = le.AppendUint32(mem, uint32(v))
			continue
		case uint32:
			mem = le.AppendUint32(mem, v)
			continue
		}
		for len(mem)%8 != 0 {
			mem = append(mem, 0xee)
		}
		switch v := a.(type) {
		case int64:
			mem = le.AppendUint64(mem, uint64(v))
		case float64:
			mem = le.AppendUint64(mem, math.Float64bits(v))
		case string:
			at := 0x5000 + uint64(len(strs))*0x100
			strs[at] = v
			mem = le.AppendUint64(mem, at)
		default:
			t.Fatalf("argument %T", a)
		}
	}
	a := &arguments{
		read: func(addr uint64, size int) []byte {
			if addr+uint64(size) > uint64(len(mem)) {
				return nil
			}
			return mem[addr:][:size]
		},
		text: func(addr uint64) (string, bool) { s, ok := strs[addr]; return s, ok },
	}
	s, err := a.format(format)
	if err != nil {
		t.Fatalf("%q: %v", format, err)
	}
	return s, a.count
}

// What C's printf makes of it, with glibc.
func TestFormats(t *testing.T) {
	for _, c := range []struct {
		format string
		args   []any
		want   string
	}{
		{"plain\n", nil, "plain\n"},
		{"100%% of %d\n", []any{5}, "100% of 5\n"},
		{"%d %i %u|%5d|%-5d|%05d|%+d|% d", []any{-1, 2, -1, 42, 42, 42, 42, 42}, "-1 2 4294967295|   42|42   |00042|+42| 42"},
		{"%x %X %o %#x %#o %#x", []any{255, 255, 8, 255, 8, 0}, "ff FF 10 0xff 010 0"},
		{"%lld %llu %lx %hd", []any{int64(-5), int64(-1), int64(1 << 40), 7}, "-5 18446744073709551615 10000000000 7"},
		{"%f %.2f %10.3f|%-10.1f|%e %E", []any{1.5, 2.345, 3.14159, 2.0, 12345.678, 0.00012}, "1.500000 2.35      3.142|2.0       |1.234568e+04 1.200000E-04"},
		{"%g %g %g %g %G", []any{100000.0, 1e6, 0.0001, 0.00001, 1e-10}, "100000 1e+06 0.0001 1e-05 1E-10"},
		{"%f %F %e %5.1f %-6g|%+f", []any{math.Inf(1), math.Inf(-1), math.NaN(), math.Inf(1), math.Inf(-1), math.Inf(1)}, "inf -INF nan   inf -inf  |+inf"},
		{"%a %A %a", []any{1.0, -0.5, 0.0}, "0x1p+0 -0X1P-1 0x0p+0"},
		{"%c%c|%3c", []any{'h' + 0, 'i' + 0, 'x' + 0}, "hi|  x"},
		{"%s|%6s|%-6s|%.2s", []any{"abc", "abc", "abc", "abc"}, "abc|   abc|abc   |ab"},
		{"%p %p", []any{int64(0x7f00), int64(0)}, "0x7f00 (nil)"},
		{"%*d|%-*d|%.*f|%*d", []any{5, 1, 4, 2, 1, 2.25, -4, 3}, "    1|2   |2.2|3   "},
		{"%.3d %8.3d %.0f", []any{5, 5, 2.5}, "005      005 2"},
		{"%d %f %d %lld", []any{1, 2.0, 3, int64(4)}, "1 2.000000 3 4"},
		{"%k %", nil, "%k %"},
	} {
		args := make([]any, len(c.args))
		for i, a := range c.args {
			if r, ok := a.(rune); ok {
				a = int(r)
			}
			args[i] = a
		}
		got, n := formatted(t, c.format, args...)
		if got != c.want {
			t.Errorf("%q: got %q, want %q", c.format, got, c.want)
		}
		if n != len(args) {
			t.Errorf("%q: %d arguments were read, not %d", c.format, n, len(args))
		}
	}
}

// text is a string for an initializer.
func text(s string) string { return hex.EncodeToString([]byte(s + "\x00")) }

func TestPrintf(t *testing.T) {
	format := "%d is %s\n"
	b := newBench(t, 4*32, strings.Replace(kernel("  var local $l 16 align 8", `
  %q = setp.ge.u32 %t, 3
  st.local.u32 [$l], %t
  %e = mov.u64 @name
  st.local.u64 [$l+8], %e
  %d = mov.u64 $l
  %d = cvta.local %d
  %e = mov.u64 @format
  @!%q %x = printf %e, %d
  st.global.u32 [%at], %x
  %e = mov.u64 0
  %x = printf %e, %d
  exit
`), "kernel @k", fmt.Sprintf(`var global @format %d align 1 = "%s"
var global @name 4 align 1 = "%s"
kernel @k`, len(format)+1, text(format), text("one")), 1))
	b.run(t, 1, 32)
	if got, want := b.out.String(), "0 is one\n1 is one\n2 is one\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if b.words()[0] != 2 {
		t.Errorf("printf returned %d", b.words()[0])
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("no paper") }

func TestPrintfThatFails(t *testing.T) {
	b := newBench(t, 4, strings.Replace(kernel("", "  %e = mov.u64 @format\n  %x = printf %e, %e\n  exit\n"), "kernel @k", `var global @format 2 align 1 = "4100"
kernel @k`, 1))
	l := b.launch(1, 1)
	l.Out = broken{}
	if err := Run(t.Context(), l); err == nil || !strings.Contains(err.Error(), "no paper") {
		t.Errorf("got %v", err)
	}
}

func TestAssertion(t *testing.T) {
	b := newBench(t, 4, strings.Replace(kernel("", `
  %e = mov.u64 @s
  %d = mov.u64 1
  %q = setp.eq.u32 %t, 2
  @%q assertfail %e, %e, 12, %e, %d
  exit
`), "kernel @k", `var global @s 2 align 1 = "7800"
kernel @k`, 1))
	f := b.fault(t, 1, 32)
	if f.Kind != Asserted || f.Thread != 2 || !strings.Contains(f.Error(), "x:12: x: Assertion `x' failed") {
		t.Errorf("got %v", f)
	}
}

func FuzzFormat(f *testing.F) {
	f.Add("%d %5.3s %-*f %a %%", []byte("0123456789abcdef0123456789abcdef"))
	f.Fuzz(func(_ *testing.T, format string, mem []byte) {
		a := &arguments{
			read: func(addr uint64, size int) []byte {
				if addr+uint64(size) > uint64(len(mem)) {
					return nil
				}
				return mem[addr:][:size]
			},
			text: func(uint64) (string, bool) { return "text", true },
		}
		_, _ = a.format(format)
	})
}
