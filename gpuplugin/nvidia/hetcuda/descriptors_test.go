// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package hetcuda_test

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/hetcuda"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/hetcuda/hetcudatest"
)

// A client can't keep us by a descriptor that it has sent, and it is closed in
// the end.
func TestReluctantDescriptor(t *testing.T) {
	t.Run("discarded", func(t *testing.T) {
		fd, relent := hetcudatest.Reluctant(t)
		hetcuda.Discard([]int{fd})
		relent()
	})
	t.Run("with a reply", func(t *testing.T) {
		fd, relent := hetcudatest.Reluctant(t)
		p, c := start(t, 0)
		p.Before(hetcudatest.Hello, func(c *net.UnixConn) bool {
			hetcudatest.SendChunks(c, []hetcudatest.Chunk{{ID: 1}}, fd)
			_ = unix.Close(fd) // what was sent is another
			return false
		})
		if _, err := c.Hello(t.Context()); err == nil {
			t.Error("no error")
		}
		relent()
	})
}
