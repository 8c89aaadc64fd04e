// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

// newNetns makes a network namespace whose loopback device is up, as a network
// plugin does, and names it by a file. The one that runc makes for a restored
// container has none that is, and a TCP connection over it can't be restored.
func (t *test) newNetns() (string, error) {
	path := filepath.Join(t.work, t.id("netns"))
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		return "", err
	}
	made := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with its namespace
		made <- enterNetns(path)
	}()
	if err := <-made; err != nil {
		return "", fmt.Errorf("make a network namespace: %w", err)
	}
	t.cleanup(func(context.Context) error { return errors.Join(unix.Unmount(path, unix.MNT_DETACH), os.Remove(path)) })
	return path, nil
}

// enterNetns moves this thread into a new one.
func enterNetns(path string) error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo); err != nil {
		return err
	}
	return unix.Mount("/proc/thread-self/ns/net", path, "", unix.MS_BIND, "")
}
