// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package random

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/lower"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ptx"
)

// TestProgram wants the same program of the same decisions, which the front end takes,
// and of all kinds of statements some.
func TestProgram(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var all strings.Builder
	for n := range 80 {
		decisions := make([]byte, 20*n)
		for i := range decisions {
			decisions[i] = byte(r.Uint32())
		}
		_, text := Program(decisions)
		if _, again := Program(decisions); again != text {
			t.Fatalf("the second time it is\n%s\nthe first time\n%s", again, text)
		}
		m, err := ptx.Parse(text)
		if err == nil {
			_, err = lower.Lower(m)
		}
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		all.WriteString(text)
	}
	for _, word := range []string{
		"addc", "madc", "fma.rn", "cvt.", "setp.", "bar.sync", "bar.red", "bar.arrive", "barrier.sync", "shfl.sync", "vote.sync", "match.any", "redux.sync", "bar.warp.sync",
		"ld.local", "st.local", "st.shared", "ld.const", "ld.global.nc", "atom.", "red.shared", "cvta.local", "isspacep", "cp.async", "call (w), f", ".callprototype",
		"brx.idx", "exit;", "v4.b32", "f32x2", "call (z)", "call (w), m",
	} {
		if !strings.Contains(all.String(), word) {
			t.Errorf("no program has %s", word)
		}
	}
}
