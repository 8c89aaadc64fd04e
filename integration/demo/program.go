// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/hetgpu/containerd-shim-hetgpu/integration/testbed"
)

// compileTimeout bounds the compiler and the linker's tools.
const compileTimeout = time.Minute

// program is what the demo runs.
type program struct {
	what string
	// args are its arguments, flags those of "ctr run" that it needs, and env
	// is what the device helper needs.
	args, flags, env []string
	image            testbed.Image
	// format is how its lines give their number.
	format string
}

// number reads the number of a line.
func (p program) number(line string) (int, error) {
	var n int
	if _, err := fmt.Sscanf(line, p.format, &n); err != nil {
		return 0, fmt.Errorf("the program says %q", line)
	}
	return n, nil
}

// pickProgram compiles what this machine can run.
func pickProgram(ctx context.Context, scratch string, c config) (program, error) {
	busybox, err := testbed.FindBusybox()
	if err != nil {
		return program{}, err
	}
	image := testbed.Image{Name: "demo.hetgpu.local/program:1", Busybox: busybox, Files: map[string]string{}}
	if _, err := os.Stat("/dev/nvidiactl"); err == nil {
		return cudaProgram(ctx, scratch, c, image)
	}
	if c.engine != "" && c.engine != "none" {
		return program{}, fmt.Errorf("engine %s: this machine has no NVIDIA GPU", c.engine)
	}
	file := filepath.Join(scratch, "counter")
	if err := testbed.CompileC(ctx, "integration/testdata/counter.c", file); err != nil {
		return program{}, err
	}
	image.Files["/bin/counter"] = file
	return program{
		what: "counts, with 64 MiB of memory, two child processes and a file (this machine has no NVIDIA GPU)",
		args: []string{"counter", "-i", "100", "-m", "64", "-c", "2", "-f", "/data"}, image: image, format: "%d",
	}, nil
}

// cudaProgram is the load of the suite for GPUs: it keeps numbers in the GPU's
// memory, changes all of them by a kernel at each line, and checks them.
func cudaProgram(ctx context.Context, scratch string, c config, image testbed.Image) (program, error) {
	libcuda, err := findLibrary(ctx, "libcuda.so.1")
	if err != nil {
		return program{}, err
	}
	file := c.gpuload
	if file == "" {
		file = filepath.Join(scratch, "gpuload")
		_, err = tool(ctx, "cc", "-std=gnu11", "-O2", "-I", "libhetcuda/include", "-o", file,
			"integration/gpu/testdata/gpuload.c", libcuda, "-Wl,--allow-shlib-undefined")
		if err != nil {
			return program{}, err
		}
	}
	image.Files["/bin/gpuload"] = file
	if err := addLibraries(ctx, image.Files, file, libcuda); err != nil {
		return program{}, err
	}
	p := program{
		what: "changes 256 MiB of GPU memory by a CUDA kernel at each line, and checks every word of it",
		args: []string{"gpuload", "-b", "256"}, image: image, format: "rank 0 tick %d",
		flags: []string{"--env", "LD_LIBRARY_PATH=/lib", "--env", "CUDA_CACHE_DISABLE=1"},
		env:   []string{"HETGPU_LIBCUDA=" + libcuda, "HETGPU_LIBNVML=" + filepath.Join(filepath.Dir(libcuda), "libnvidia-ml.so.1")},
	}
	if c.engine != "" {
		// The image has the driver's library by no other name, behind libhetcuda.
		p.flags = append(p.flags, "--annotation", "io.hetgpu.engine="+c.engine, "--env", "HETCUDA_REAL=/lib/libcuda.so.1")
	}
	gpus, err := filepath.Glob("/dev/nvidia[0-9]*")
	if err != nil || len(gpus) == 0 {
		return program{}, errors.New("/dev has nvidiactl, but no GPU")
	}
	for _, device := range []string{"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", gpus[0]} {
		if _, err := os.Stat(device); err == nil {
			p.flags = append(p.flags, "--device", device)
		}
	}
	return p, nil
}

// addLibraries adds what a program needs to run: the libraries that it links,
// the dynamic linker, and those that libcuda loads by itself.
func addLibraries(ctx context.Context, files map[string]string, program, libcuda string) error {
	out, err := tool(ctx, "ldd", program)
	if err != nil {
		return err
	}
	for line := range strings.Lines(out) {
		for word := range strings.FieldsSeq(line) {
			if !strings.HasPrefix(word, "/") {
				continue
			}
			files["/lib/"+filepath.Base(word)] = word
			if strings.HasPrefix(filepath.Base(word), "ld-linux") {
				files[word] = word
			}
		}
	}
	files["/lib/libcuda.so.1"] = libcuda
	for _, name := range []string{"libnvidia-ptxjitcompiler.so.1", "libnvidia-gpucomp.so.*", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libm.so.6"} {
		found, err := filepath.Glob(filepath.Join(filepath.Dir(libcuda), name))
		if err != nil {
			return err
		}
		if file, err := findLibrary(ctx, name); err == nil {
			found = append(found, file)
		}
		for _, file := range found {
			files["/lib/"+filepath.Base(file)] = file
		}
	}
	return nil
}

// findLibrary finds a library as the dynamic linker does, or else where hosts
// for containers have their driver's.
func findLibrary(ctx context.Context, name string) (string, error) {
	dirs := filepath.SplitList(os.Getenv("LD_LIBRARY_PATH"))
	if out, err := tool(ctx, "ldconfig", "-p"); err == nil {
		for line := range strings.Lines(out) {
			entry, file, ok := strings.Cut(strings.TrimSpace(line), " => ")
			if ok && strings.HasPrefix(entry, name+" (") && strings.Contains(entry, "x86-64") {
				dirs = append(dirs, filepath.Dir(file))
			}
		}
	}
	for _, dir := range append(dirs, "/usr/local/nvidia/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib64") {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			return filepath.Join(dir, name), nil
		}
	}
	return "", fmt.Errorf("find %s: %w", name, os.ErrNotExist)
}

func tool(ctx context.Context, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, compileTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out), nil
}
