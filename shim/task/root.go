// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package task

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/hetgpu/containerd-shim-hetgpu/internal/execx"
	"github.com/hetgpu/containerd-shim-hetgpu/oci"
)

// prepareRoot has done, in the root of a container that is about to be restored,
// what CRIU does not do: the saved one's writable layer is applied, and the hooks are
// run that runc runs only when it makes a container. Another program does it: few
// restores need it, and the code would be in the memory of all shims.
func (c *container) prepareRoot(ctx context.Context) error {
	state := specs.State{Version: specs.Version, ID: c.id, Status: specs.StateCreating, Bundle: c.bundle}
	layer, err := c.layer()
	if err != nil {
		return err
	}
	if layer != "" {
		state.Annotations = map[string]string{oci.AnnotationLayer: layer}
	}
	if layer == "" && !c.skippedHooks {
		return nil
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	program, err := exec.LookPath(filepath.Join(filepath.Dir(self), oci.HookProgram))
	if err != nil {
		return fmt.Errorf("the container's root is prepared by %s: %w; install it beside the shim", oci.HookProgram, err)
	}
	input, err := json.Marshal(state)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.timeout, fmt.Errorf("not done within %s", c.timeout))
	defer cancel()
	var out bytes.Buffer
	cmd := execx.Command(ctx, program, oci.HookRestored)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), &out, &out
	if err := execx.Run(ctx, cmd); err != nil {
		return fmt.Errorf("prepare the container's root (%s): %w: %s", oci.HookProgram, err, execx.LastLines(out.String(), 4))
	}
	return nil
}
