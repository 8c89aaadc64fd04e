// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

func TestPlan(t *testing.T) {
	both := []string{engineDriver, engineSplit}
	name := func(i item) string {
		if i.timing {
			return "timing"
		}
		return i.row.name + ":" + i.engine
	}
	for _, test := range []struct {
		name, words string
		engines     []string
		want        []string
		wrong       string
	}{
		{
			name: "in the order of the words", words: "half zeros,timing,single process", engines: both,
			want: []string{"half zeros:split", "timing", "single process:driver", "single process:split"},
		},
		{name: "one engine", words: "single process:split", engines: []string{engineDriver}, want: []string{"single process:split"}},
		{name: "only the engine of the row", words: "legacy IPC", engines: both, want: []string{"legacy IPC:driver"}},
		{name: "once", words: "exit,exit:split,exit", engines: both, want: []string{"exit:driver", "exit:split"}},
		{name: "unknown", words: "exit,nonsense", engines: both, wrong: `no row "nonsense"`},
		{name: "unknown engine", words: "exit:best", engines: both, wrong: "best"},
		{name: "not with this engine", words: "half zeros", engines: []string{engineDriver}, wrong: `"half zeros"`},
		{name: "nothing", words: "", engines: both, wrong: `no row ""`},
	} {
		t.Run(test.name, func(t *testing.T) {
			items, err := planFor(strings.Split(test.words, ","), test.engines)
			if test.wrong != "" {
				if err == nil || !strings.Contains(err.Error(), test.wrong) {
					t.Fatalf("error is %v, not %q", err, test.wrong)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, i := range items {
				got = append(got, name(i))
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("the plan is %v, not %v", got, test.want)
			}
		})
	}
}

// What was named first is first, and everything else follows once.
func TestPlanFirstThenAll(t *testing.T) {
	all, err := planFor([]string{"all"}, []string{engineSplit})
	if err != nil {
		t.Fatal(err)
	}
	some, err := planFor([]string{"speed", "all"}, []string{engineSplit})
	if err != nil {
		t.Fatal(err)
	}
	if len(some) != len(all) || some[0].row.name != "speed" || !some[len(some)-1].timing {
		t.Errorf("%d of %d things, the first %q", len(some), len(all), some[0].row.name)
	}
	var table bytes.Buffer
	if err := list(&table, some); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(table.String(), "\n"); lines != len(some)+2 {
		t.Errorf("%d lines for %d things:\n%s", lines, len(some), table.String())
	}
}

// A row is named on a command line, between commas and before a colon.
func TestRowNames(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range rows {
		if r.name == "" || strings.ContainsAny(r.name, ",:") || slices.Contains([]string{"all", "rows", "timing"}, r.name) || seen[r.name] {
			t.Errorf("a row can't be named %q", r.name)
		}
		seen[r.name] = true
		if r.what == "" || r.test == nil || r.usual() > r.limit() {
			t.Errorf("%s: %q, takes %s and may take %s", r.name, r.what, r.usual(), r.limit())
		}
	}
}
