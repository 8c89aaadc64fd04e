// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// corpusBudget is after how long the compiler's corpus begins nothing more.
const corpusBudget = 4 * time.Minute

// corpusRow runs the compiler's corpus on the GPU, by a program of its own, which
// writes corpus.json and corpus.md beside the report.
func corpusRow(ctx context.Context, t *test) (string, error) {
	program, err := t.d.Lookup("gpu-corpus")
	if err != nil {
		return "", skipError("gpu-corpus is not in the path; 'make gpu-bundle' builds it")
	}
	args := []string{"-out", t.out, "-budget", corpusBudget.String(), "-libcuda", filepath.Join(t.gpu.libraries, libcuda)}
	if t.gpu.machine != nil {
		// The stand-in runs no kernels.
		args = append(args, "-rehearse", "-scale", "16384", "-workers", "2", "-only", "reduce_shared,collatz,print")
	}
	for _, child := range []string{"curun", "clrun"} {
		if file := filepath.Join(t.prebuilt, child); t.prebuilt != "" {
			if _, err := os.Stat(file); err == nil {
				args = append(args, "-"+child, file)
			}
		}
	}
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+t.gpu.libraries+":"+os.Getenv("LD_LIBRARY_PATH"))
	cmd.Stderr = &said
	err = cmd.Run()
	lines := strings.Split(strings.TrimSpace(said.String()), "\n")
	if err != nil {
		return "", fmt.Errorf("gpu-corpus: %w: %s; corpus.md has the rest", err, strings.Join(lines[max(0, len(lines)-20):], "\n"))
	}
	return lines[len(lines)-1], nil
}
