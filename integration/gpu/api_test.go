// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
)

func TestDifferences(t *testing.T) {
	for _, test := range []struct {
		name, want, got string
		same, known     int
		different       string
	}{
		{name: "the same", want: "a\nb", got: "a\nb", same: 2},
		{name: "another result", want: "a\nb", got: "a\nc", same: 1, different: `"b", and with libhetcuda "c"`},
		{name: "less", want: "a\nb", got: "a", same: 1, different: `"(nothing)"`},
		{name: "more", want: "a", got: "a\nb", same: 1, different: `"(nothing)", and with libhetcuda "b"`},
		{name: "as it should be", want: "attribute 89: 0, 1\na", got: "attribute 89: 0, 0\na", same: 1, known: 1},
		{name: "another attribute", want: "attribute 8: 0, 1", got: "attribute 8: 0, 0", different: "attribute 8"},
	} {
		t.Run(test.name, func(t *testing.T) {
			same, known, different := differences(strings.Split(test.want, "\n"), strings.Split(test.got, "\n"))
			if same != test.same || len(known) != test.known {
				t.Errorf("%d lines are the same and %d are known", same, len(known))
			}
			if all := strings.Join(different, "\n"); !strings.Contains(all, test.different) || (test.different == "") != (all == "") {
				t.Errorf("the difference is %q", all)
			}
		})
	}
}

func TestParseUVM(t *testing.T) {
	u, err := parseUVM(`{"row": "turns", "ok": true, "bytes": 1.0, "turn_s": 0.5}`)
	if err != nil || u.Row != "turns" || u.Turn != 0.5 {
		t.Errorf("%+v, %v", u, err)
	}
	for _, line := range []string{"", "nonsense", `{"row": "turns", "ok": false, "what": "data"}`, `{"row": "turns"}`} {
		if _, err := parseUVM(line); err == nil {
			t.Errorf("%q was taken", line)
		}
	}
}
