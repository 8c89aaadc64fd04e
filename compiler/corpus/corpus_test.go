// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package corpus

import (
	"bytes"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// TestCases: each case is well made, and the same each time; each file has a case.
func TestCases(t *testing.T) {
	again, used, names := All(), map[string]bool{}, map[string]bool{}
	for i, c := range All() {
		if names[c.Name] {
			t.Errorf("two cases are named %s", c.Name)
		}
		names[c.Name], used[c.File] = true, true
		if _, err := PTX(c.File); err != nil {
			t.Errorf("%s: %v", c.Name, err)
		}
		if len(c.Launches) == 0 {
			t.Errorf("%s: no launch", c.Name)
		}
		if !slices.ContainsFunc(c.Buffers, func(b *Buffer) bool { return !bytes.Equal(b.Init, b.Want) }) && c.Output == nil {
			t.Errorf("%s: nothing has to change", c.Name)
		}
		for j, b := range c.Buffers {
			if b.Var && b.Init == nil {
				b.Init = make([]byte, len(b.Want))
			}
			if len(b.Init) != len(b.Want) || len(b.Init)%b.Elem.Size() != 0 || len(b.Init) == 0 {
				t.Errorf("%s: %s has %d bytes, wants %d", c.Name, b.Name, len(b.Init), len(b.Want))
			}
			if o := again[i].Buffers[j]; o.Init != nil && !bytes.Equal(b.Init, o.Init) || !bytes.Equal(b.Want, o.Want) {
				t.Errorf("%s: %s differs the second time", c.Name, b.Name)
			}
		}
		if Get(c.Name) == nil {
			t.Errorf("%s: not found by its name", c.Name)
		}
	}
	for _, f := range Files() {
		if !used[f] {
			t.Errorf("no case runs kernels/%s", f)
		}
	}
}

func TestPlace(t *testing.T) {
	a, b := in(make([]uint64, 600)), in([]uint32{1})
	v := in([]uint32{1}).variable("v")
	p := in(make([]uint64, 2))
	p.Want = slices.Clone(p.Init)
	p.Pointers = []Pointer{{Offset: 8, To: b, Addend: 3}}
	c := &Case{Buffers: []*Buffer{a, v, b, p}}
	end := c.Place(0x10000)
	if a.Addr != 0x10000 || b.Addr != 0x13000 || p.Addr != 0x15000 || v.Addr != 0 || end != 0x17000 {
		t.Errorf("placed at %#x %#x %#x %#x, end %#x", a.Addr, b.Addr, p.Addr, v.Addr, end)
	}
	if want := encode([]uint64{0, 0x13003}); !bytes.Equal(p.Init, want) || !bytes.Equal(p.Want, want) {
		t.Errorf("pointers: %x", p.Init)
	}
}

func TestParams(t *testing.T) {
	b := in([]uint32{1})
	b.Addr = 0x1122
	l := launch(1, 1, uint8(1), uint16(2), uint32(3), uint8(4), b, float32(1), []byte{5, 6})
	want := []byte{1, 0, 2, 0, 3, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0x22, 0x11, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 0x3f, 0, 0, 0, 0, 5, 6}
	if got := l.Params(); !bytes.Equal(got, want) {
		t.Errorf("got  %x\nwant %x", got, want)
	}
}

func TestCompare(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	tests := []struct {
		name      string
		got, want []float32
		limit     Error
		err       string
	}{
		{"equal", []float32{1, nan}, []float32{1, nan}, Error{}, ""},
		{"a bit", []float32{1, 2}, []float32{1, math.Nextafter32(2, 3)}, Error{}, "1 of 2 elements are wrong; [1] is 2"},
		{"near", []float32{1000.5, 0.0005}, []float32{1000, 0}, Error{1e-3, 1e-3}, ""},
		{"not near enough", []float32{1002}, []float32{1000}, Error{1e-3, 1e-3}, "1 of 1"},
		{"a number for a NaN", []float32{1}, []float32{nan}, Error{1, 1}, "want NaN"},
		{"a NaN for a number", []float32{nan}, []float32{1}, Error{1, 1}, "is NaN"},
		{"large for infinite", []float32{math.MaxFloat32}, []float32{inf}, Error{1, 1}, "want +Inf"},
		{"short", []float32{1}, []float32{1, 2}, Error{1, 1}, "has 4 bytes"},
	}
	for _, tt := range tests {
		b := in(tt.want).within(tt.limit)
		err := b.Compare(encode(tt.got), encode(tt.want))
		if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.err)
		}
	}
}

func TestCheckOutput(t *testing.T) {
	c := &Case{Output: []string{"a", "b"}}
	if err := c.CheckOutput("b\na\n"); err != nil {
		t.Error(err)
	}
	if c.CheckOutput("a\n") == nil || c.CheckOutput("") == nil || (&Case{}).CheckOutput("a\n") == nil {
		t.Error("a missing or additional line is no error")
	}
}

// TestFma32 compares with exact arithmetic, near ties above all.
func TestFma32(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		a := math.Float32frombits(r.Uint32()&0x00ff_f000 | 0x3f00_0000)
		b := math.Float32frombits(r.Uint32()&0x007f_f000 | 0x3f80_0000)
		c := float32(math.Ldexp(float64(r.Uint32()>>8), r.IntN(60)-60))
		exact := new(big.Float).SetPrec(300).Mul(big.NewFloat(float64(a)), big.NewFloat(float64(b)))
		exact.Add(exact, big.NewFloat(float64(c)))
		if want, _ := exact.Float32(); fma32(a, b, c) != want {
			t.Fatalf("fma32(%g, %g, %g) = %g, want %g", a, b, c, fma32(a, b, c), want)
		}
	}
}
