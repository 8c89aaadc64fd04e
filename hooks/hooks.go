// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Package hooks is what an OCI runtime calls for a container that has our CDI
// device, where no shim of ours does the same: it gives the container a control
// directory, in which its processes that run libhetcuda listen, and removes it.
// All else that such a container gets is in the CDI specification. And it is what
// our shim has done in the root of a container that it restores, in a process that
// ends: few containers need it, and the shim would have the code in its memory for
// all of them.
//
// It must not know of a containerd that runs, of a GPU or of who started the
// runtime. It holds no lock.
package hooks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/hetgpu/containerd-shim-hetgpu/hooks/controldir"
	"github.com/hetgpu/containerd-shim-hetgpu/oci"
)

// Kind is when the runtime calls the hook, named as the runtime specification
// does.
type Kind string

// The two calls. At createRuntime runc has made the container's mounts, and has
// not yet made its root the root (runc 1.5, libcontainer/rootfs_linux.go).
const (
	CreateRuntime Kind = "createRuntime"
	Poststop      Kind = "poststop"
	// Restored is not the runtime's: our shim has it do what the runtime does not do
	// at a restore.
	Restored Kind = oci.HookRestored
)

// Kinds are the calls of a runtime.
var Kinds = []Kind{CreateRuntime, Poststop}

// stateLimit bounds what is read of the state: it has the annotations.
const stateLimit = 4 << 20

// Run does what the hook is called for, with the container's state as the
// runtime writes it to standard input. Either call may come twice, and a
// container that has its control directory from our shim is left alone.
func Run(ctx context.Context, kind Kind, state io.Reader) error {
	s, err := readState(state)
	if err != nil {
		return fmt.Errorf("read the container's state: %w", err)
	}
	switch kind {
	case CreateRuntime:
		err = makeControl(s)
	case Restored:
		if err = applyLayer(ctx, s); err == nil {
			err = runSkipped(ctx, s)
		}
	case Poststop:
		err = controldir.Remove(s.Bundle)
	default:
		err = fmt.Errorf("there is no such call as %q", kind)
	}
	if err != nil {
		return fmt.Errorf("container %s: %w", s.ID, err)
	}
	return nil
}

func readState(r io.Reader) (*specs.State, error) {
	data, err := io.ReadAll(io.LimitReader(r, stateLimit+1))
	if err != nil {
		return nil, err
	}
	if len(data) > stateLimit {
		return nil, fmt.Errorf("it has more than %d bytes", stateLimit)
	}
	var s specs.State
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, err
	}
	if !filepath.IsAbs(s.Bundle) {
		return nil, fmt.Errorf("the bundle is %q, want an absolute path", s.Bundle)
	}
	return &s, nil
}

// makeControl makes the directory and shows it to the container.
func makeControl(s *specs.State) error {
	spec, err := oci.Load(s.Bundle)
	if err != nil {
		return err
	}
	if oci.HasControl(spec) {
		return nil
	}
	if s.Pid <= 0 {
		return fmt.Errorf("its process is %d: %q is the call for this program", s.Pid, CreateRuntime)
	}
	// One of a container that was started before from this bundle.
	if err := controldir.Remove(s.Bundle); err != nil {
		return err
	}
	if err := controldir.Make(s.Bundle); err != nil {
		return err
	}
	if err := show(controldir.Path(s.Bundle), s.Pid, spec.Rootfs(), oci.InjectedControl); err != nil {
		return errors.Join(err, controldir.Remove(s.Bundle))
	}
	return nil
}
