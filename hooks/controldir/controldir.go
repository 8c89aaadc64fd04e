// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Package controldir makes and removes the directory of a container in which its
// processes that run libhetcuda listen. The container can write to it, so it is
// a file system of its own, in which there is room for sockets and nothing else:
// the bundle's is the host's. The shim and the hook share it.
package controldir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// name is the directory in a bundle.
const name = "hetgpu-control"

// options leave room for a socket of each of many processes. Whatever user they
// run as can make one, and remove no other's.
const options = "size=64k,nr_inodes=4k,mode=1777"

// Path is the directory of the container with this bundle.
func Path(bundle string) string { return filepath.Join(bundle, name) }

// Make makes it.
func Make(bundle string) error {
	dir := Path(bundle)
	// The path is for the container, which sees it from its mount on.
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("make the control directory: %w", err)
	}
	if err := unix.Mount("hetgpu", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, options); err != nil {
		return errors.Join(fmt.Errorf("mount the control directory %s: %w", dir, err), os.Remove(dir))
	}
	return nil
}

// Remove removes it, if it is there. Nothing in it is followed anywhere.
func Remove(bundle string) error {
	dir := Path(bundle)
	err := unix.Unmount(dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil && !errors.Is(err, unix.EINVAL) { // not mounted
		return fmt.Errorf("unmount the control directory %s: %w", dir, err)
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the control directory: %w", err)
	}
	return nil
}
