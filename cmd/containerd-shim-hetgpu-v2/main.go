// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Command containerd-shim-hetgpu-v2 is the shim that containerd starts for the
// runtime io.hetgpu.v2.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/hetgpu/containerd-shim-hetgpu/shim/manager"
	_ "github.com/hetgpu/containerd-shim-hetgpu/shim/plugin"
)

func main() {
	if err := manager.Run(context.Background()); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %s\n", manager.Runtime, err)
		os.Exit(1)
	}
}
