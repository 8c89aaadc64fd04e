// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package interp

import (
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
	"strconv"
	"strings"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
)

// printer writes what programs print, until that fails.
type printer struct {
	out io.Writer
	err error
}

func (p *printer) write(s string) {
	if p.out == nil || p.err != nil {
		return
	}
	if _, err := io.WriteString(p.out, s); err != nil {
		p.err = fmt.Errorf("interp: printf: %w", err)
	}
}

// maxString bounds the strings that a program prints, in bytes.
const maxString = 1 << 16

// text reads a string that ends with a zero.
func (w *warp) text(f *frame, in *ir.Instr, l int, addr uint64) (string, bool) {
	var s strings.Builder
	for s.Len() < maxString {
		b := w.at(f, in, ir.Generic, l, addr+uint64(s.Len()), 1, false)
		if b == nil {
			return "", false
		}
		if b[0] == 0 {
			break
		}
		s.WriteByte(b[0])
	}
	return s.String(), true
}

// printf is vprintf. Its result is the number of arguments, or -1 where there is
// no format.
func (b *builder) printf() error {
	format, args, d, in := b.arg(0), b.arg(1), b.to(0, ir.B32), b.Instr
	b.i.run = func(w *warp, f *frame, mask uint32) {
		var v lanes
		for m := mask; m != 0; m &= m - 1 {
			l := bits.TrailingZeros32(m)
			at := format.get(w, f)[l]
			if at == 0 {
				v[l] = 0xffffffff
				continue
			}
			text, ok := w.text(f, in, l, at)
			if !ok {
				return
			}
			a := &arguments{
				at:   args.get(w, f)[l],
				read: func(addr uint64, size int) []byte { return w.at(f, in, ir.Generic, l, addr, size, false) },
				text: func(addr uint64) (string, bool) { return w.text(f, in, l, addr) },
			}
			s, err := a.format(text)
			if err != nil {
				return // a fault is noted
			}
			w.printer.write(s)
			v[l] = uint64(a.count)
		}
		d.set(f, &v, mask)
	}
	return nil
}

// assertfail is __assertfail: message, file, line, function, size of a character.
func (b *builder) assertfail() error {
	var args [4]operand
	for n := range args {
		args[n] = b.arg(n)
	}
	in := b.Instr
	b.i.run = func(w *warp, f *frame, mask uint32) {
		l := bits.TrailingZeros32(mask)
		var s [4]string
		for _, n := range []int{0, 1, 3} {
			if at := args[n].get(w, f)[l]; at != 0 {
				var ok bool
				if s[n], ok = w.text(f, in, l, at); !ok {
					return
				}
			}
		}
		w.fail(Asserted, f, in, mask, fmt.Sprintf("%s:%d: %s: Assertion `%s' failed", s[1], uint32(args[2].get(w, f)[l]), s[3], s[0]))
	}
	return nil
}

// arguments are those of a printf: one behind the other, each aligned to its
// size, which is 4 or 8.
type arguments struct {
	at    uint64
	count int
	read  func(addr uint64, size int) []byte
	text  func(addr uint64) (string, bool)
}

var errAccess = errors.New("an access that failed")

func (a *arguments) next(size int) (uint64, error) {
	a.at = (a.at + uint64(size) - 1) &^ uint64(size-1)
	b := a.read(a.at, size)
	if b == nil {
		return 0, errAccess
	}
	a.at += uint64(size)
	a.count++
	return get(b), nil
}

// conversion is what stands between a percent sign and what is converted.
type conversion struct {
	flags            string
	width, precision int // -1: none
	long             bool
}

// spec is Go's notation of it for a verb of its own.
func (c conversion) spec(verb string) string {
	s := "%" + c.flags
	if c.width >= 0 {
		s += strconv.Itoa(c.width)
	}
	if c.precision >= 0 {
		s += "." + strconv.Itoa(c.precision)
	}
	return s + verb
}

// pad is for what is text: only a minus sign and the width count.
func (c conversion) pad(s string) string {
	c.precision = -1
	if strings.Contains(c.flags, "-") {
		c.flags = "-"
	} else {
		c.flags = ""
	}
	return fmt.Sprintf(c.spec("s"), s)
}

// format is C's printf, as the host of a device prints.
func (a *arguments) format(f string) (string, error) {
	var out strings.Builder
	for f != "" {
		text, rest, found := strings.Cut(f, "%")
		out.WriteString(text)
		if !found {
			break
		}
		c, verb, rest, err := a.conversion(rest)
		if err != nil {
			return "", err
		}
		f = rest
		s, err := a.convert(c, verb)
		if err != nil {
			return "", err
		}
		out.WriteString(s)
	}
	return out.String(), nil
}

// conversion reads flags, width, precision and sizes; verb 0: the format ends.
func (a *arguments) conversion(f string) (c conversion, verb byte, rest string, err error) {
	n := len(f) - len(strings.TrimLeft(f, "-+ #0"))
	c.flags, f = f[:n], f[n:]
	if c.width, f, err = a.number(f, -1); err != nil {
		return c, 0, "", err
	}
	if c.width < -1 {
		c.flags, c.width = c.flags+"-", -c.width
	}
	c.precision = -1
	if strings.HasPrefix(f, ".") {
		if c.precision, f, err = a.number(f[1:], 0); err != nil {
			return c, 0, "", err
		}
		c.precision = max(c.precision, -1)
	}
	n = len(f) - len(strings.TrimLeft(f, "hlLqjzt"))
	c.long = strings.ContainsAny(f[:n], "lLqjzt")
	f = f[n:]
	if f == "" {
		return c, 0, "", nil
	}
	return c, f[0], f[1:], nil
}

// number reads digits, or a star and its argument.
func (a *arguments) number(f string, absent int) (int, string, error) {
	const most = 4096 // so that a format can't ask for gigabytes
	if strings.HasPrefix(f, "*") {
		x, err := a.next(4)
		return int(min(max(signed(x, 4), -most), most)), f[1:], err
	}
	n := len(f) - len(strings.TrimLeft(f, "0123456789"))
	if n == 0 {
		return absent, f, nil
	}
	x, err := strconv.Atoi(f[:n])
	if err != nil || x > most {
		x = most
	}
	return x, f[n:], nil
}

func (a *arguments) convert(c conversion, verb byte) (string, error) {
	size := 4
	if c.long {
		size = 8
	}
	switch verb {
	case 0:
		return "%", nil
	case '%':
		return "%", nil
	case 'd', 'i':
		x, err := a.next(size)
		return fmt.Sprintf(c.spec("d"), signed(x, size)), err
	case 'u', 'x', 'X', 'o':
		x, err := a.next(size)
		c.flags = strings.NewReplacer("+", "", " ", "").Replace(c.flags)
		if x == 0 {
			c.flags = strings.ReplaceAll(c.flags, "#", "")
		}
		v := string(verb)
		if verb == 'u' {
			v = "d"
		}
		return fmt.Sprintf(c.spec(v), x), err
	case 'c':
		x, err := a.next(4)
		return c.pad(string([]byte{byte(x)})), err
	case 'p':
		x, err := a.next(8)
		if x == 0 {
			return c.pad("(nil)"), err
		}
		return c.pad("0x" + strconv.FormatUint(x, 16)), err
	case 's':
		return a.string(c)
	case 'e', 'E', 'f', 'F', 'g', 'G', 'a', 'A':
		x, err := a.next(8)
		return c.float(verb, f64(x)), err
	}
	return "%" + string(verb), nil
}

func (a *arguments) string(c conversion) (string, error) {
	x, err := a.next(8)
	if err != nil {
		return "", err
	}
	s := "(null)"
	if x != 0 {
		var ok bool
		if s, ok = a.text(x); !ok {
			return "", errAccess
		}
	}
	if c.precision >= 0 && c.precision < len(s) {
		s = s[:c.precision]
	}
	return c.pad(s), nil
}

// float formats as C does where Go differs: infinities and NaN, the precision
// that %g has, and %a's exponent.
func (c conversion) float(verb byte, x float64) string {
	upper := verb < 'a'
	if math.IsNaN(x) || math.IsInf(x, 0) {
		s := "nan"
		if math.IsInf(x, 0) {
			s = "inf"
		}
		switch {
		case math.Signbit(x):
			s = "-" + s
		case strings.Contains(c.flags, "+"):
			s = "+" + s
		case strings.Contains(c.flags, " "):
			s = " " + s
		}
		if upper {
			s = strings.ToUpper(s)
		}
		return c.pad(s)
	}
	switch verb {
	case 'a', 'A':
		s := strconv.FormatFloat(x, 'x', c.precision, 64)
		if at := strings.IndexByte(s, 'p') + 2; s[at] == '0' {
			s = s[:at] + s[at+1:]
		}
		if upper {
			s = strings.ToUpper(s)
		}
		return c.pad(s)
	case 'F':
		verb = 'f'
	}
	if c.precision < 0 {
		c.precision = 6
	}
	if c.precision == 0 && (verb == 'g' || verb == 'G') {
		c.precision = 1
	}
	return fmt.Sprintf(c.spec(string(verb)), x)
}
