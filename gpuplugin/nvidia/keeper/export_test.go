// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"testing"
	"time"
)

// SetLetGoTimeout has what is spent be waited for longer, until the test's end.
func SetLetGoTimeout(t *testing.T, d time.Duration) {
	t.Helper()
	before := letGoTimeout
	letGoTimeout = d
	t.Cleanup(func() { letGoTimeout = before })
}
