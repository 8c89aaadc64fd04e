// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/moby/sys/mountinfo"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/helperapi"
	"github.com/hetgpu/containerd-shim-hetgpu/integration/standin"
)

const (
	libcuda = "libcuda.so.1"
	libnvml = "libnvidia-ml.so.1"
	// programTimeout bounds compilers and the like.
	programTimeout = 2 * time.Minute
)

// gpuHost is the machine with its driver, real or not.
type gpuHost struct {
	helperapi.Report

	// machine is the stand-in, nil on a real one.
	machine *standin.Machine
	// libraries has the driver's libraries, deviceDir its device nodes.
	libraries, deviceDir string
	// hostEnv is for programs that call the driver on the host, containerEnv
	// for those in containers.
	hostEnv, containerEnv []string
}

// findGPU finds the driver and asks it what there is.
func (s *suite) findGPU(ctx context.Context, path []string) (*gpuHost, error) {
	g := &gpuHost{deviceDir: "/dev"}
	var err error
	if s.standIn != "" {
		err = g.standInFor(s.standIn, largest(s.series), filepath.Join(s.ram, "machine"))
	} else {
		err = g.findLibraries(ctx)
	}
	if err != nil {
		return nil, err
	}
	g.hostEnv = append(g.hostEnv,
		"HETGPU_LIBCUDA="+filepath.Join(g.libraries, libcuda), "HETGPU_LIBNVML="+filepath.Join(g.libraries, libnvml))
	libraryPath := strings.Trim(g.libraries+":"+os.Getenv("LD_LIBRARY_PATH"), ":")
	// The cache of compiled kernels would be one more thing on disk.
	g.containerEnv = append(g.containerEnv, "LD_LIBRARY_PATH="+libraryPath, "CUDA_CACHE_DISABLE=1")
	return g, g.ask(ctx, path)
}

// ask runs the device helper, which is also the first test of it.
func (g *gpuHost) ask(ctx context.Context, path []string) error {
	ctx, cancel := context.WithTimeout(ctx, programTimeout)
	defer cancel()
	program, err := lookup(path, "hetgpu-gpu")
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, program, "inventory")
	cmd.Env = append(os.Environ(), g.hostEnv...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("hetgpu-gpu inventory: %w\n%s%s", err, out, stderr.String())
	}
	if err := json.Unmarshal(out, &g.Report); err != nil {
		return fmt.Errorf("hetgpu-gpu inventory: %w\n%s", err, out)
	}
	if len(g.Devices) == 0 {
		return errors.New("the driver knows of no GPU")
	}
	return nil
}

func lookup(path []string, program string) (string, error) {
	for _, dir := range path {
		file := filepath.Join(dir, program)
		if st, err := os.Stat(file); err == nil && st.Mode().IsRegular() {
			return filepath.Abs(file)
		}
	}
	return exec.LookPath(program)
}

// standInFor makes a machine with two GPUs that hold the largest size four
// times.
func (g *gpuHost) standInFor(libraries string, mib int, dir string) error {
	var err error
	if g.libraries, err = filepath.Abs(libraries); err != nil {
		return err
	}
	spec := standin.H200s(2, os.Getpid()).WithMemory(uint64(max(mib, 512)) * 4 << 20)
	if g.machine, err = standin.New(dir, spec); err != nil {
		return err
	}
	g.deviceDir = g.machine.DevDir()
	g.hostEnv = g.machine.Env()
	g.containerEnv = []string{"HETGPU_STANDIN=" + g.machine.Dir}
	return nil
}

// findLibraries looks where drivers' libraries are: where the dynamic linker
// finds them, and where container hosts mount them.
func (g *gpuHost) findLibraries(ctx context.Context) error {
	dirs := filepath.SplitList(os.Getenv("LD_LIBRARY_PATH"))
	if out, err := exec.CommandContext(ctx, "ldconfig", "-p").Output(); err == nil {
		for line := range strings.Lines(string(out)) {
			if name, file, ok := strings.Cut(line, "=>"); ok && strings.HasPrefix(strings.TrimSpace(name), libcuda) && strings.Contains(name, "x86-64") {
				dirs = append(dirs, filepath.Dir(strings.TrimSpace(file)))
			}
		}
	}
	dirs = append(dirs, "/usr/local/nvidia/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib64")
	for _, dir := range dirs {
		_, cuda := os.Stat(filepath.Join(dir, libcuda))
		_, nvml := os.Stat(filepath.Join(dir, libnvml))
		if cuda == nil && nvml == nil && !strings.Contains(dir, "stubs") {
			g.libraries = dir
			return nil
		}
	}
	return fmt.Errorf("found no %s with %s in %s: is a driver installed?", libcuda, libnvml, strings.Join(dirs, ", "))
}

// container is what a container needs to use the GPUs with the given numbers:
// device nodes, the host's libraries, read-only, and the test programs.
func (s *suite) container(gpus ...int) ([]oci.SpecOpts, error) {
	opts := []oci.SpecOpts{oci.WithEnv(s.gpu.containerEnv)}
	names := []string{"nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"}
	for _, gpu := range gpus {
		names = append(names, "nvidia"+strconv.Itoa(s.gpu.Devices[gpu].Minor))
	}
	for _, name := range names {
		node := filepath.Join(s.gpu.deviceDir, name)
		if _, err := os.Stat(node); err == nil {
			opts = append(opts, oci.WithDevices(node, "/dev/"+name, "rwm"))
		}
	}
	var mounts []specs.Mount
	for _, dir := range []string{"/usr", "/lib", "/lib64", s.gpu.libraries} {
		var err error
		if mounts, err = addMount(mounts, dir, dir); err != nil {
			return nil, err
		}
	}
	mounts = append(mounts, bind(s.programs, "/gpu", "ro"))
	if s.gpu.machine != nil {
		mounts = append(mounts, bind(s.gpu.machine.Dir, s.gpu.machine.Dir, "rw"))
	}
	return append(opts, oci.WithMounts(mounts)), nil
}

// addMount makes a directory of the host visible, with what is mounted below
// it: each mount by a name of its own, so that CRIU knows where it comes from.
// What an earlier mount shows already is left out.
func addMount(mounts []specs.Mount, source, destination string) ([]specs.Mount, error) {
	if shown(mounts, destination) {
		return mounts, nil
	}
	resolved, err := filepath.EvalSymlinks(source)
	if err != nil {
		return nil, err
	}
	mounts = append(mounts, bind(resolved, destination, "ro"))
	below, err := mountinfo.GetMounts(mountinfo.PrefixFilter(resolved))
	if err != nil {
		return nil, err
	}
	for _, m := range below {
		rest := strings.TrimPrefix(m.Mountpoint, resolved)
		if rest != "" && !slices.ContainsFunc(mounts, func(o specs.Mount) bool { return o.Destination == destination+rest }) {
			mounts = append(mounts, bind(m.Mountpoint, destination+rest, "ro"))
		}
	}
	return mounts, nil
}

func shown(mounts []specs.Mount, path string) bool {
	return slices.ContainsFunc(mounts, func(m specs.Mount) bool {
		return path == m.Destination || strings.HasPrefix(path, m.Destination+"/")
	})
}

func bind(source, destination, mode string) specs.Mount {
	return specs.Mount{Type: "bind", Source: source, Destination: destination, Options: []string{"bind", mode, "rprivate"}}
}
