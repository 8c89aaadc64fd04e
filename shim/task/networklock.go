// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package task

import (
	"context"
	"fmt"
	"os/exec"

	"github.com/containerd/errdefs"

	"github.com/hetgpu/containerd-shim-hetgpu/runtime/criu"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/runc"
)

// networkLock chooses how CRIU holds packets back while it saves connections:
// by iptables if it is there, else by nftables. Where neither is, a dump that
// saves no connection needs none (CRIU refuses to dump one that it was not
// asked to save), and neither does a container in the host's network, which
// CRIU does not lock.
func (s *service) networkLock(ctx context.Context, c *container, tool criu.Tool, tcpEstablished bool) (runc.NetworkLock, error) {
	if _, err := exec.LookPath("iptables-restore"); err == nil {
		return runc.LockIPTables, nil
	}
	if criu.HasFeatureOnce(ctx, tool.Path, s.config.StateDir, "network_lock_nftables") {
		return runc.LockNFTables, nil
	}
	if c.hostNetwork || !tcpEstablished {
		return runc.LockSkip, nil
	}
	return "", fmt.Errorf("established TCP connections are to be saved, and CRIU can't hold their packets back: "+
		"there is no iptables-restore in PATH, and CRIU or the kernel has no nftables; install iptables: %w", errdefs.ErrFailedPrecondition)
}
