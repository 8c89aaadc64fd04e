// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package hetcuda

import (
	"time"

	"golang.org/x/sys/unix"
)

// discardTimeout is far above what the driver needs to free a device's memory.
const discardTimeout = 5 * time.Second

// Discard closes descriptors that clients have sent. What they are of is not
// known, and closing a socket may wait for its peer, or a file of a FUSE file
// system for its server, either of which the client can be: that is waited for a
// while, and goes on by itself then.
func Discard(fds []int) {
	if len(fds) == 0 {
		return
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
	}()
	select {
	case <-closed:
	case <-time.After(discardTimeout):
	}
}
