// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package interp

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// Who of a warp is together: each case stores the active threads at one place of its
// control flow. Who does not come there stores nothing.
func TestWhoIsTogether(t *testing.T) {
	const (
		all  = 0xffffffff
		tell = "  %x = activemask\n  st.global.u32 [%at], %x\n"
	)
	some := func(mask uint32) func(uint32) uint32 {
		return func(t uint32) uint32 { return mask & -(mask >> t & 1) }
	}
	for name, tc := range map[string]struct {
		body string
		want func(t uint32) uint32
	}{
		"nobody has gone":               {tell + "  exit\n", some(all)},
		"within an if":                  {"  %q = setp.lt.u32 %t, 8\n  @%q br a, end\na:\n" + tell + "  br end\nend:\n  exit\n", some(0xff)},
		"else":                          {"  %q = setp.lt.u32 %t, 8\n  @%q br end, a\na:\n" + tell + "  br end\nend:\n  exit\n", some(0xffffff00)},
		"within two":                    {"  %q = setp.lt.u32 %t, 8\n  @%q br a, end\na:\n  %q1 = setp.lt.u32 %t, 3\n  @%q1 br b, end\nb:\n" + tell + "  br end\nend:\n  exit\n", some(7)},
		"behind the inner":              {"  %q = setp.lt.u32 %t, 8\n  @%q br a, end\na:\n  %q1 = setp.lt.u32 %t, 3\n  @%q1 br b, c\nb:\n  br c\nc:\n" + tell + "  br end\nend:\n  exit\n", some(0xff)},
		"behind both":                   {"  %q = setp.lt.u32 %t, 8\n  @%q br a, end\na:\n  %q1 = setp.lt.u32 %t, 3\n  @%q1 br b, c\nb:\n  br c\nc:\n  br end\nend:\n" + tell + "  exit\n", some(all)},
		"of an even and an odd":         {"  %y = and.b32 %t, 1\n  %q = setp.eq.u32 %y, 0\n  @%q br a, b\na:\n" + tell + "  br end\nb:\n" + tell + "  br end\nend:\n  exit\n", func(t uint32) uint32 { return 0x55555555 << (t & 1) }},
		"when some have ended":          {"  %q = setp.lt.u32 %t, 10\n  @%q br a, b\na:\n  exit\nb:\n" + tell + "  exit\n", some(0xfffffc00)},
		"in a loop's last round":        {"  %i = mov.u32 0\n  br round\nround:\n  %x = activemask\n  %q = setp.lt.u32 %i, %t\n  %i = add.u32 %i, 1\n  @%q br round, end\nend:\n  st.global.u32 [%at], %x\n  exit\n", func(t uint32) uint32 { return uint32(all) << t }},
		"behind a loop":                 {"  %i = mov.u32 0\n  br round\nround:\n  %q = setp.lt.u32 %i, %t\n  %i = add.u32 %i, 1\n  @%q br round, end\nend:\n" + tell + "  exit\n", some(all)},
		"behind a loop that some break": {"  %i = mov.u32 0\n  br round\nround:\n  %q = setp.eq.u32 %i, %t\n  @%q br end, on\non:\n  %i = add.u32 %i, 1\n  %q1 = setp.lt.u32 %i, 20\n  @%q1 br round, end\nend:\n" + tell + "  exit\n", some(all)},
		"behind what some skip in a loop": {"  %i = mov.u32 0\n  br round\nround:\n  %y = and.b32 %t, 1\n  %q = setp.eq.u32 %y, 0\n  @%q br part, latch\npart:\n  %z = add.u32 %z, 1\n  br latch\nlatch:\n" + tell +
			"  %i = add.u32 %i, 1\n  %q = setp.lt.u32 %i, 3\n  @%q br round, end\nend:\n  exit\n", some(all)},
		"in a loop that others have left for good": {"  %i = mov.u32 0\n  br round\nround:\n  %q = setp.eq.u32 %i, %t\n  @%q br gone, on\ngone:\n  exit\non:\n  %i = add.u32 %i, 1\n  %q1 = setp.lt.u32 %i, 4\n  @%q1 br round, end\nend:\n" + tell + "  exit\n", some(0xfffffff0)},
		"where ways cross":                         {"  %q = setp.lt.u32 %t, 16\n  @%q br a, b\na:\n  %q1 = setp.lt.u32 %t, 8\n  @%q1 br c, d\nb:\n  %q1 = setp.lt.u32 %t, 24\n  @%q1 br c, d\nc:\n  br end\nd:\n  br end\nend:\n" + tell + "  exit\n", some(all)},
		"behind a loop with two entries":           {"  %i = mov.u32 0\n  %q = setp.lt.u32 %t, 16\n  @%q br a, b\na:\n  %i = add.u32 %i, 1\n  br b\nb:\n  %i = add.u32 %i, 1\n  %q1 = setp.lt.u32 %i, 9\n  @%q1 br a, end\nend:\n" + tell + "  exit\n", some(all)},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, 4*32, kernel("", tc.body))
			b.run(t, 1, 32)
			for i, got := range b.words() {
				if want := tc.want(uint32(i)); got != want {
					t.Errorf("thread %d: together are %#x, want %#x", i, got, want)
				}
			}
		})
	}
	b := newBench(t, 4*40, kernel("", tell+"  exit\n"))
	b.run(t, 1, 40)
	if got := b.words(); got[31] != all || got[32] != 0xff || got[39] != 0xff {
		t.Errorf("of 40 threads together are %#x and %#x", got[31], got[39])
	}
}

// At which barriers threads meet, and at which they never would: nobody is behind one
// of those.
func TestWhoMeetsAtABarrier(t *testing.T) {
	const passed = "  st.global.u32 [%at], 1\n"
	// Warp 0 goes one way and warp 1 another.
	apart := func(first, second string) string {
		return "  %q = setp.lt.u32 %t, 32\n  @%q br a, b\na:\n" + first + "  br end\nb:\n" + second + "  br end\nend:\n" + passed + "  exit\n"
	}
	for name, tc := range map[string]struct {
		body string
		want FaultKind // 0: both warps pass
	}{
		"all":                            {"  bar.sync 0\n" + passed + "  exit\n", 0},
		"all, by different instructions": {apart("  bar.sync 0\n", "  bar.sync 0\n"), 0},
		"all, counted":                   {"  bar.sync 3, 64\n" + passed + "  exit\n", 0},
		"one warp, for itself":           {apart("  bar.sync 1, 32\n", ""), 0},
		"each warp, for itself":          {apart("  bar.sync 1, 32\n", "  bar.sync 2, 32\n"), 0},
		"one waits, the other does not":  {apart("  bar.sync 1, 64\n", "  bar.arrive 1, 64\n"), 0},
		"one after the other":            {apart("  bar.sync 1, 64\n  bar.sync 2, 64\n", "  bar.sync 1, 64\n  bar.sync 2, 64\n"), 0},
		"the other has ended":            {"  %q = setp.lt.u32 %t, 32\n  @%q br a, b\na:\n  bar.sync 0\n" + passed + "  exit\nb:\n" + passed + "  exit\n", 0},
		"more rounds than the other":     {"  %i = mov.u32 0\n  %y = shr.u32 %t, 5\n  br round\nround:\n  bar.sync 0\n  %q = setp.lt.u32 %i, %y\n  %i = add.u32 %i, 1\n  @%q br round, end\nend:\n" + passed + "  exit\n", 0},
		"parts of warps, one by one":     {"  %y = and.b32 %t, 1\n  %q = setp.eq.u32 %y, 0\n  @%q br a, b\na:\n  bar.sync 0\n  br end\nb:\n  bar.sync 0\n  br end\nend:\n" + passed + "  exit\n", 0},

		"each at its own":              {apart("  bar.sync 1, 64\n", "  bar.sync 2, 64\n"), DivergentBarrier},
		"each waits for the other":     {apart("  bar.sync 1, 64\n  bar.sync 2, 64\n", "  bar.sync 2, 64\n  bar.sync 1, 64\n"), DivergentBarrier},
		"one too few":                  {"  %q = setp.lt.u32 %t, 32\n  @%q br a, b\na:\n  bar.sync 1, 64\n" + passed + "  exit\nb:\n  exit\n", DivergentBarrier},
		"more than there are":          {"  bar.sync 1, 96\n" + passed + "  exit\n", DivergentBarrier},
		"together, and are not":        {"  %y = and.b32 %t, 1\n  %q = setp.eq.u32 %y, 0\n  @%q br a, b\na:\n  bar.sync.aligned 0\n  br end\nb:\n  bar.sync.aligned 0\n  br end\nend:\n" + passed + "  exit\n", DivergentBarrier},
		"nobody comes a second time":   {"  %q = setp.lt.u32 %t, 32\n  @%q br a, b\na:\n  bar.sync 1, 64\n  bar.sync 1, 64\n" + passed + "  exit\nb:\n  bar.arrive 1, 64\n  exit\n", DivergentBarrier},
		"a warp is not whole for vote": {"  %q = setp.lt.u32 %t, 9\n  @%q br a, b\na:\n  %q1 = vote.any %q, 0xffffffff\n" + passed + "  exit\nb:\n  bar.sync 1, 96\n" + passed + "  exit\n", DivergentWarp},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, 4*64, kernel("", tc.body))
			err := Run(t.Context(), b.launch(1, 64))
			f := &Fault{}
			if errors.As(err, &f); f.Kind != tc.want || (err == nil) != (tc.want == 0) {
				t.Fatalf("error %v, want %v", err, tc.want)
			}
			behind := 0
			for _, w := range b.words() {
				behind += int(w)
			}
			if tc.want == 0 && behind != 64 || tc.want != 0 && behind != 0 {
				t.Errorf("%d threads are behind it", behind)
			}
		})
	}
}

// The edges of each kind of memory: what is wholly within is read and written, what is
// partly or wholly beyond is neither, nor is what is not aligned.
func TestEdgesOfMemory(t *testing.T) {
	const size = 32
	for _, space := range []struct{ name, declare, address string }{
		{"global", "", "  %d = mov.u64 %p\n"},
		{"shared", "  var shared $m 32 align 16", "  %d = mov.u64 $m\n"},
		{"local", "  var local $m 32 align 16", "  %d = mov.u64 $m\n"},
		{"generic", "", "  %d = mov.u64 %p\n"},
	} {
		prefix := "." + space.name
		if space.name == "generic" {
			prefix = ""
		}
		for _, access := range []struct {
			text  string
			bytes int // of an access, which is its alignment
		}{
			{"st%s.u8 [%%d], 1", 1},
			{"st%s.u16 [%%d], 1", 2},
			{"st%s.u32 [%%d], 1", 4},
			{"st%s.u64 [%%d], 1", 8},
			{"st%s.v4.u32 [%%d], 1, 1, 1, 1", 16},
			{"st%s.v2.u8 [%%d], 1, 1", 2},
			{"%%x = ld%s.u8 [%%d]", 1},
			{"%%x = ld%s.u32 [%%d]", 4},
			{"%%e = ld%s.u64 [%%d]", 8},
			{"%%x, %%y = ld%s.v2.u32 [%%d]", 8},
			{"%%x = atom%s.add.u32 [%%d], 1", 4},
			{"%%e = atom%s.exch.b64 [%%d], 1", 8},
			{"red%s.add.u32 [%%d], 1", 4},
		} {
			if space.name == "local" && (strings.HasPrefix(access.text, "red") || strings.Contains(access.text, "atom")) {
				continue // there are none
			}
			text := fmt.Sprintf(access.text, prefix)
			for offset := -access.bytes; offset <= size+access.bytes; offset++ {
				var want FaultKind
				switch within := offset >= 0 && offset+access.bytes <= size; {
				case offset%access.bytes != 0:
					want = Misaligned
				case !within:
					want = OutOfBounds
				}
				b := newBench(t, size, kernel(space.declare, fmt.Sprintf("%s  %%d = add.u64 %%d, %d\n  %s\n  exit\n", space.address, uint64(offset), text)))
				err := Run(t.Context(), b.launch(1, 1))
				f := &Fault{}
				// Which of the two comes first, where both are, is not said.
				both := offset%access.bytes != 0 && (offset < 0 || offset+access.bytes > size)
				if errors.As(err, &f); f.Kind != want && (!both || f.Kind != OutOfBounds) || (err == nil) != (want == 0) {
					t.Errorf("%s at %d of %d: %v, want %v", text, offset, size, err, want)
				}
				if want != 0 {
					for i, c := range b.buffer {
						if c != 0 {
							t.Errorf("%s at %d failed, and byte %d was written", text, offset, i)
						}
					}
				}
			}
		}
	}
}
