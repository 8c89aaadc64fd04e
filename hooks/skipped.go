// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/hetgpu/containerd-shim-hetgpu/internal/execx"
	"github.com/hetgpu/containerd-shim-hetgpu/oci"
)

// skippedTimeout bounds a hook that names no time-out of its own: one of them
// reads all libraries of the container.
const skippedTimeout = 60 * time.Second

// runSkipped runs the hooks that a runtime runs when it makes a container, and
// not when it restores one, as far as they change files: in a mount namespace in
// which the container's root has NVIDIA's mounts, as at their first time. The
// process ends with it.
func runSkipped(ctx context.Context, s *specs.State) error {
	spec, err := oci.Load(s.Bundle)
	if err != nil {
		return err
	}
	list := oci.SkippedHooks(spec)
	if len(list) == 0 {
		return nil
	}
	s.Status, s.Pid = specs.StateCreating, os.Getpid()
	state, err := json.Marshal(s)
	if err != nil {
		return err
	}
	result := make(chan error, 1)
	go func() {
		// Programs are started in the namespace of the thread that starts them.
		// It ends with the goroutine.
		runtime.LockOSThread()
		err := mountLibraries(spec)
		for _, h := range list {
			if err == nil {
				err = call(ctx, h, state)
			}
		}
		result <- err
	}()
	return <-result
}

// mountLibraries needs a thread of its own, which it takes into a new mount
// namespace.
func mountLibraries(spec *oci.Spec) error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("make a mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make its mounts private: %w", err)
	}
	root, err := os.OpenFile(spec.Rootfs(), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, m := range oci.LibraryMounts(spec) {
		if err := mountLibrary(root, m); err != nil {
			return fmt.Errorf("mount %s: %w", m.Source, err)
		}
	}
	return nil
}

func mountLibrary(root *os.File, m specs.Mount) error {
	info, err := os.Stat(m.Source)
	if err != nil {
		return err
	}
	tree, err := unix.OpenTree(unix.AT_FDCWD, m.Source, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(tree)
	return mountAt(root, tree, m.Destination, info.IsDir())
}

// call runs one hook as the runtime specification says.
func call(ctx context.Context, h specs.Hook, state []byte) error {
	timeout := skippedTimeout
	if h.Timeout != nil && *h.Timeout > 0 {
		timeout = time.Duration(*h.Timeout) * time.Second
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("not done within %s", timeout))
	defer cancel()
	var out bytes.Buffer
	cmd := execx.Command(ctx, h.Path)
	if len(h.Args) > 0 {
		cmd.Args = h.Args
	}
	cmd.Env = append([]string{}, h.Env...) // none is none, and not ours
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(state), &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("hook %s %q: %w: %s", h.Path, h.Args, errors.Join(context.Cause(ctx), err), execx.LastLines(out.String(), 3))
	}
	return nil
}
