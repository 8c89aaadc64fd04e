// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for _, test := range []struct {
		name, output string
		last         map[int]uint64
		wrong        string
	}{
		{name: "nothing", last: map[int]uint64{}},
		{name: "one", output: "rank 0 tick 7 sum ab\nrank 0 tick 8 sum ac", last: map[int]uint64{0: 8}},
		{name: "beat", output: "beat 7f00\nrank 0 tick 1 sum 0", last: map[int]uint64{0: 1}},
		{name: "ranks", output: "rank 1 tick 1 sum a\nrank 0 tick 5 sum b\nrank 1 tick 2 sum c", last: map[int]uint64{0: 5, 1: 2}},
		{name: "gap", output: "rank 0 tick 1 sum a\nrank 0 tick 3 sum b", wrong: "from tick 1 to 3"},
		{name: "again", output: "rank 0 tick 1 sum a\nrank 0 tick 1 sum a", wrong: "from tick 1 to 1"},
		{name: "error", output: "error: rank 0 tick 2: the sum is 5", wrong: "the program says"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var lines []string
			if test.output != "" {
				lines = strings.Split(test.output, "\n")
			}
			ranks, err := parse(lines)
			if test.wrong != "" {
				if err == nil || !strings.Contains(err.Error(), test.wrong) {
					t.Fatalf("error is %v, not %q", err, test.wrong)
				}
				return
			}
			if err != nil || len(ranks) != len(test.last) {
				t.Fatalf("%d ranks, %v", len(ranks), err)
			}
			for rank, want := range test.last {
				if got := ranks[rank][len(ranks[rank])-1].n; got != want {
					t.Errorf("the last tick of rank %d is %d, not %d", rank, got, want)
				}
			}
		})
	}
}

func TestBookKnowsWhatIsLost(t *testing.T) {
	b := book{}
	if err := b.enter(map[int][]tick{0: {{1, "a"}, {2, "b"}}}); err != nil {
		t.Fatal(err)
	}
	if err := b.enter(map[int][]tick{0: {{2, "b"}, {3, "c"}}, 1: {{2, "z"}}}); err != nil {
		t.Fatal(err)
	}
	if err := b.enter(map[int][]tick{0: {{3, "d"}}}); err == nil {
		t.Error("another sum at the same tick was accepted")
	}
}
