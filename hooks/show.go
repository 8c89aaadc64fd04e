// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	"github.com/cyphar/filepath-securejoin/pathrs-lite"
	"golang.org/x/sys/unix"
)

// show mounts what is mounted at source in a container that is being made: below
// rootfs, in the mount namespace of its process. Nothing that the image has at
// destination leads out of rootfs.
func show(source string, pid int, rootfs, destination string) error {
	tree, err := unix.OpenTree(unix.AT_FDCWD, source, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return fmt.Errorf("open the mount %s: %w", source, err)
	}
	defer unix.Close(tree)
	ns, err := os.Open(filepath.Join("/proc", strconv.Itoa(pid), "ns", "mnt"))
	if err != nil {
		return err
	}
	defer ns.Close()
	result := make(chan error, 1)
	go func() {
		// The thread ends with the goroutine: it can't come back.
		runtime.LockOSThread()
		result <- attach(tree, int(ns.Fd()), rootfs, destination)
	}()
	if err := <-result; err != nil {
		return fmt.Errorf("show the container %s: %w", destination, err)
	}
	return nil
}

// attach needs a thread of its own, which it takes into the mount namespace.
func attach(tree, ns int, rootfs, destination string) error {
	// A thread that shares its root with others can't leave their namespace.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("leave the other threads: %w", err)
	}
	if err := unix.Setns(ns, unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("enter the container's mount namespace: %w", err)
	}
	root, err := os.OpenFile(rootfs, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := mountAt(root, tree, destination, true); err != nil {
		return err
	}
	// The clone is a peer of the host's mount until it is told otherwise.
	if err := unix.Mount("", "/proc/thread-self/fd/"+strconv.Itoa(tree), "", unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make it private: %w", err)
	}
	return nil
}

// mountAt mounts a detached tree, a directory or a file, below a root. What is
// missing of the path is made; nothing in it leads out of the root.
func mountAt(root *os.File, tree int, destination string, directory bool) error {
	at, err := pathrs.OpenatInRoot(root, destination)
	switch {
	case err == nil:
	case !errors.Is(err, fs.ErrNotExist):
		return err
	case directory:
		at, err = pathrs.MkdirAllHandle(root, destination, 0o755)
	default:
		at, err = makeFile(root, destination)
	}
	if err != nil {
		return err
	}
	defer at.Close()
	err = unix.MoveMount(tree, "", int(at.Fd()), "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
	if err != nil {
		return fmt.Errorf("mount at %s: %w", destination, err)
	}
	return nil
}

// makeFile makes an empty file for a mount.
func makeFile(root *os.File, name string) (*os.File, error) {
	dir, err := pathrs.MkdirAllHandle(root, filepath.Dir(name), 0o755)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	fd, err := unix.Openat(int(dir.Fd()), filepath.Base(name), unix.O_RDONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return nil, &fs.PathError{Op: "create", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}
