// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package opencl

import "testing"

// AllAreLarge makes every kernel with points too large for an entry each, until the
// test ends.
func AllAreLarge(t *testing.T) {
	t.Helper()
	was := largest
	t.Cleanup(func() { largest = was })
	largest = 0
}
