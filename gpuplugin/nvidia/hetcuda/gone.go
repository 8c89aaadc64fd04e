// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package hetcuda

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Gone tells whether a process has ended with all of its threads, reaped or not.
func Gone(pid int) bool {
	ended, err := ended(pid, 0)
	return err == nil && ended
}

// endPoll is how soon AwaitEnd sees that its context has ended.
const endPoll = 100 * time.Millisecond

// AwaitEnd waits until a process has ended, as [Gone] says. Whoever dies closes its
// connections first, and is gone only when the driver has taken its memory apart.
func AwaitEnd(ctx context.Context, pid int) error {
	for {
		over, err := ended(pid, endPoll)
		if err != nil || over {
			return err
		}
		if ctx.Err() != nil {
			return fmt.Errorf("process %d has not ended: %w", pid, context.Cause(ctx))
		}
	}
}

// ended asks by a descriptor, which can be polled for the end (pidfd_open(2)).
func ended(pid int, wait time.Duration) (bool, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("pidfd_open of process %d: %w", pid, err)
	}
	defer unix.Close(fd)
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(wait.Milliseconds()))
	if err != nil && !errors.Is(err, unix.EINTR) {
		return false, fmt.Errorf("poll process %d: %w", pid, err)
	}
	return n > 0, nil
}
