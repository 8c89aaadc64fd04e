// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Command hetgpu-hook is the OCI hook of our CDI device (hetgpu cdi generate): a
// runtime calls it with the container's state on standard input.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/hetgpu/containerd-shim-hetgpu/hooks"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintf(os.Stderr, "usage: hetgpu-hook KIND, of %q; the container's state is read from standard input\n", hooks.Kinds)
		os.Exit(2)
	}
	if err := hooks.Run(context.Background(), hooks.Kind(os.Args[1]), os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "hetgpu-hook:", err)
		os.Exit(1)
	}
}
