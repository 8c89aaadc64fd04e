// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// NewNetwork makes a network namespace whose loopback device is up, as network
// plugins do, and names it by a new file; remove takes both away. The namespace that
// runc makes for a restored container has no device that is up: a TCP connection
// over it can't be restored.
func NewNetwork(file string) (remove func() error, err error) {
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		return nil, err
	}
	made := make(chan error)
	go func() {
		// The thread is of no more use in another namespace: it ends with this
		// function, since it stays locked.
		runtime.LockOSThread()
		made <- enterNetwork(file)
	}()
	if err := <-made; err != nil {
		return nil, fmt.Errorf("make a network namespace: %w", err)
	}
	return func() error { return errors.Join(unix.Unmount(file, unix.MNT_DETACH), os.Remove(file)) }, nil
}

// enterNetwork moves this thread into a new network namespace and mounts that on a
// file.
func enterNetwork(file string) error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return err
	}
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(socket)
	loopback, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	loopback.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, loopback); err != nil {
		return err
	}
	return unix.Mount("/proc/thread-self/ns/net", file, "", unix.MS_BIND, "")
}
