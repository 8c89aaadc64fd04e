// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Command hetgpu-ptxc compiles PTX to a form that can be paused on one device and
// go on on another, and tells how each kernel of a program can be paused:
// docs/compiler.md.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
)

func main() {
	err := run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errUsage):
		os.Exit(2)
	default:
		fmt.Fprintln(os.Stderr, "hetgpu-ptxc:", err)
		os.Exit(1)
	}
}
