// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Command mkimage makes an OCI image from the host's static busybox and some
// files, without a network, for "ctr image import".
//
//	mkimage -o image.tar [-name REF] [PATH-IN-IMAGE=FILE]...
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/hetgpu/containerd-shim-hetgpu/integration/testbed"
)

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "mkimage:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	output := flag.String("o", "image.tar", "`file` to write")
	im := testbed.Image{Files: map[string]string{}}
	flag.StringVar(&im.Name, "name", testbed.ImageName, "`reference` of the image")
	flag.StringVar(&im.Busybox, "busybox", "", "static busybox (default: the one in PATH)")
	flag.Parse()
	for _, arg := range flag.Args() {
		inImage, file, ok := strings.Cut(arg, "=")
		if !ok {
			return fmt.Errorf("%q is not PATH-IN-IMAGE=FILE", arg)
		}
		im.Files[inImage] = file
	}
	if im.Busybox == "" {
		busybox, err := testbed.FindBusybox()
		if err != nil {
			return err
		}
		im.Busybox = busybox
	}
	out, err := os.OpenFile(*output, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	if err := im.Write(ctx, out); err != nil {
		_ = out.Close()
		return err
	}
	return out.Close()
}
