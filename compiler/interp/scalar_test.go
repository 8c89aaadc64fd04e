// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package interp

import (
	"math/rand/v2"
)

// seeded numbers are the same in each run.
func seeded() *rand.Rand { return rand.New(rand.NewPCG(5, 1993)) }
