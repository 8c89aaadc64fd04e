// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"runtime"
	"sync"
)

const (
	// manyProcessors is from when on a machine hashes what was dumped faster
	// after the dump than beside it: hashing reads what CRIU has just written,
	// and cost its single thread a tenth of its speed where it was measured
	// (16 processors, 32 GiB on tmpfs: 14.1 s instead of 12.8 s).
	manyProcessors = 8
	// mostProcessors bounds what one snapshot takes of a large machine.
	mostProcessors = 32
)

// processors is the number of chunks that are hashed at once. One processor
// is left to whoever asks the shim for the container's state meanwhile.
func processors() int { return max(1, runtime.GOMAXPROCS(0)-1) }

// boosted counts those who need all processors; before is what Go had.
var boosted struct {
	mu     sync.Mutex
	users  int
	before int
}

// boost lets Go use the machine's processors until the returned function is
// called: containerd starts shims with four, to keep them small.
func boost() (end func()) {
	boosted.mu.Lock()
	defer boosted.mu.Unlock()
	if boosted.users == 0 {
		boosted.before = runtime.GOMAXPROCS(min(runtime.NumCPU(), mostProcessors))
	}
	boosted.users++
	return func() {
		boosted.mu.Lock()
		defer boosted.mu.Unlock()
		if boosted.users--; boosted.users == 0 {
			runtime.GOMAXPROCS(boosted.before)
		}
	}
}
