// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"math"
	"testing"
)

func TestStats(t *testing.T) {
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[99-i] = float64(i + 1)
	}
	for _, test := range []struct {
		name        string
		values      []float64
		median, p99 float64
	}{
		{"none", nil, math.NaN(), math.NaN()},
		{"one", []float64{3}, 3, 3},
		{"odd", []float64{9, 1, 5}, 5, 9},
		{"even", []float64{4, 1, 3, 2}, 2.5, 4},
		{"hundred", hundred, 50.5, 99},
	} {
		t.Run(test.name, func(t *testing.T) {
			expectFloat(t, "median", Median(test.values), test.median)
			expectFloat(t, "p99", Percentile(test.values, 99), test.p99)
		})
	}
	if hundred[0] != 100 {
		t.Error("the values were sorted in place")
	}
}

func expectFloat(t *testing.T, what string, got, want float64) {
	t.Helper()
	if got != want && !(math.IsNaN(got) && math.IsNaN(want)) {
		t.Errorf("%s is %v, not %v", what, got, want)
	}
}
