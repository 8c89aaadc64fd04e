// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

//go:embed testdata
var sources embed.FS

// compile builds the test programs on this machine, with its own cuda.h and
// driver library; where that is not possible it takes those of the bundle, and
// the report says so.
func (s *suite) compile(ctx context.Context) error {
	tree, err := fs.Sub(sources, "testdata")
	if err != nil {
		return err
	}
	if err := os.CopyFS(s.programs, tree); err != nil {
		return err
	}
	// Containers read them.
	if err := os.Chmod(s.programs, 0o755); err != nil {
		return err
	}
	for _, name := range []string{"gpuload", "ck", "conform"} {
		err := s.compileOne(ctx, name)
		if err == nil {
			continue
		}
		if s.prebuilt == "" {
			return err
		}
		s.run.Notes = append(s.run.Notes, fmt.Sprintf("%s could not be compiled here; the bundle's was used (%v)", name, err))
		data, readErr := os.ReadFile(filepath.Join(s.prebuilt, name))
		if err := errors.Join(readErr, os.WriteFile(filepath.Join(s.programs, name), data, 0o755)); err != nil {
			return err
		}
	}
	return nil
}

func (s *suite) compileOne(ctx context.Context, name string) error {
	include := s.include
	for _, dir := range []string{os.Getenv("CUDA_HOME"), os.Getenv("CUDA_PATH"), "/usr/local/cuda"} {
		dir = filepath.Join(dir, "include")
		if _, err := os.Stat(filepath.Join(dir, "cuda.h")); err == nil && s.gpu.machine == nil {
			include = dir
			break
		}
	}
	compiler := os.Getenv("CC")
	if compiler == "" {
		compiler = "cc"
	}
	ctx, cancel := context.WithTimeout(ctx, programTimeout)
	defer cancel()
	// The library needs others of the driver, which are found when it runs.
	args := []string{
		"-std=gnu11", "-O2", "-Wall", "-I", include, "-o", filepath.Join(s.programs, name), filepath.Join(s.programs, name+".c"),
		"-L", s.gpu.libraries, "-l:" + libcuda, "-Wl,--allow-shlib-undefined",
	}
	if out, err := exec.CommandContext(ctx, compiler, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", compiler, strings.Join(args, " "), err, out)
	}
	return nil
}
