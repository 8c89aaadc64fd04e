// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// demo runs the demonstration with an engine, by a program of its own that starts
// another containerd, and keeps what it prints.
func demo(ctx context.Context, t *test) (string, error) {
	if t.gpu.machine != nil {
		return "", skipError("this is about a GPU")
	}
	program, err := t.d.Lookup("gpu-demo")
	if err != nil {
		return "", skipError("gpu-demo is not in the path; 'make gpu-bundle' builds it")
	}
	path, err := t.programPath()
	if err != nil {
		return "", err
	}
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, program, "-engine", t.engine, "-path", strings.Join(path, ":"), "-gpuload", filepath.Join(t.programs, "gpuload"))
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+t.gpu.libraries+":"+os.Getenv("LD_LIBRARY_PATH"), "PATH="+strings.Join(path, ":")+":"+os.Getenv("PATH"))
	cmd.Stdout, cmd.Stderr = &said, &said
	err = cmd.Run()
	lines := strings.Split(strings.TrimSpace(said.String()), "\n")
	if err := errors.Join(err, os.WriteFile(filepath.Join(t.out, "demo-"+t.engine+".txt"), said.Bytes(), 0o644)); err != nil {
		return "", fmt.Errorf("%w: %s", err, strings.Join(tail(lines, 20), "; "))
	}
	return lines[len(lines)-1], nil
}
