// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
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

	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/hetgpu/containerd-shim-hetgpu/integration/rig"
)

const (
	trainSteps = 60
	// saveAfter is the step after which the training is ended by a checkpoint, and
	// saveBefore how often it is saved before that, and goes on.
	saveAfter, saveBefore = 12, 3
)

// python is the host's Python with PyTorch.
type python struct {
	Executable string   `json:"executable"`
	Paths      []string `json:"paths"`
	Torch      bool     `json:"torch"`
	// env and files are for its programs.
	env, files []string
}

// findPython asks the python3 of this host what it consists of.
func findPython(ctx context.Context) (*python, error) {
	program, err := exec.LookPath("python3")
	if err != nil {
		return nil, skipError("there is no python3")
	}
	ctx, cancel := context.WithTimeout(ctx, programTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, program, "-c", `
import importlib.util, json, sys
print(json.dumps({"executable": sys.executable, "torch": importlib.util.find_spec("torch") is not None,
                  "paths": [sys.prefix, sys.base_prefix] + [p for p in sys.path if p]}))`).Output()
	if err != nil {
		return nil, fmt.Errorf("ask python3 where it is: %w", err)
	}
	p := &python{}
	if err := json.Unmarshal(out, p); err != nil {
		return nil, err
	}
	p.findTools()
	return p, nil
}

// findTools adds what frameworks compile with while they run. A container has no
// /etc/alternatives, so each is named by where it really is.
func (p *python) findTools() {
	path := os.Getenv("PATH")
	for _, name := range []string{"gcc", "cc", "nvcc", "ptxas"} {
		program, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		dir := filepath.Dir(resolved(program))
		p.Paths = append(p.Paths, filepath.Dir(filepath.Dir(program)), filepath.Dir(dir))
		path = dir + ":" + path
		if name == "ptxas" {
			p.env = append(p.env, "CUDA_HOME="+filepath.Dir(dir))
		}
	}
	// Triton asks /sbin/ldconfig where libcuda is, which looks it up in its cache.
	p.Paths = append(p.Paths, "/sbin")
	p.files = append(p.files, "/etc/ld.so.cache")
	p.env = append(p.env, "PATH="+path)
}

// resolved is a path without links, as far as that can be told.
func resolved(path string) string {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		return target
	}
	return path
}

// mounts makes Python visible in a container, where it is on the host, and a
// directory for what it compiles while it runs: that is there for the restored one
// too, which begins with another root file system.
func (p *python) mounts(scratch string) ([]specs.Mount, error) {
	// What every container of the suite has already.
	have := []specs.Mount{{Destination: "/usr"}, {Destination: "/lib"}, {Destination: "/lib64"}}
	mounts := have
	for _, dir := range p.Paths {
		if st, err := os.Stat(dir); err != nil || !st.IsDir() {
			continue
		}
		var err error
		if mounts, err = addMount(mounts, dir, dir); err != nil {
			return nil, err
		}
	}
	mounts = append(mounts, bind(scratch, "/scratch", "rw"))
	for _, file := range p.files {
		if _, err := os.Stat(file); err == nil {
			mounts = append(mounts, bind(file, file, "ro"))
		}
	}
	return mounts[len(have):], nil
}

// pyTorch trains twice side by side, saves one of them, and restores it on a GPU.
func pyTorch(gpu int) func(ctx context.Context, t *test) (string, error) {
	return func(ctx context.Context, t *test) (string, error) {
		if gpu > 0 && (gpu >= len(t.gpu.Devices) || t.gpu.machine != nil) {
			return "", skipError("this is about a second GPU")
		}
		p, err := findPython(ctx)
		if err != nil {
			return "", err
		}
		args := []string{p.Executable, "/gpu/train.py", fmt.Sprint(trainSteps)}
		what := "PyTorch"
		if !p.Torch && t.gpu.machine == nil {
			return "", skipError("python3 has no torch")
		}
		if t.gpu.machine != nil {
			args, what = append(args, "plain"), "plain Python, no GPU"
		}
		detail, err := t.cut(ctx, p, args, saveBefore, saveAfter, gpu)
		if err != nil {
			return "", err
		}
		return what + ", " + detail, nil
	}
}

// cut runs a program twice side by side, saves one of them so often while it goes
// on, ends it by a checkpoint after so many steps, and restores it on a
// GPU: every line has to be as in the other.
func (t *test) cut(ctx context.Context, p *python, args []string, before, after, gpu int) (string, error) {
	whole, err := t.train(ctx, p, args)
	if err != nil {
		return "", err
	}
	cut, err := t.train(ctx, p, args)
	if err != nil {
		return "", err
	}
	for i := range before + 1 {
		if err := waitForLine(ctx, cut, fmt.Sprintf("step %d ", after*(i+1)/(before+1)), "missing "); err != nil {
			return "", err
		}
		if lines := cut.Out.Lines(); strings.HasPrefix(lines[0], "missing ") {
			return "", skipError(lines[0])
		}
		if i < before {
			saved, err := cut.Checkpoint(ctx, t.directory("going-on"), false)
			if err != nil {
				return "", fmt.Errorf("checkpoint %d: %w", i+1, err)
			}
			t.note("saved after step %d in %s, and went on", len(cut.Out.Lines()), seconds(saved.Total()))
		}
	}
	dir := t.directory("training")
	saved, err := cut.Checkpoint(ctx, dir, true)
	if err != nil {
		return "", err
	}
	if _, err := cut.WaitExit(ctx); err != nil {
		return "", err
	}
	first := cut.Out.Lines()
	rest, err := t.newTraining(ctx, p, args, gpu)
	if err != nil {
		return "", err
	}
	took, err := rest.Restore(ctx, dir)
	if err != nil {
		return "", err
	}
	for _, c := range []*rig.Container{rest, whole} {
		if err := waitForLine(ctx, c, "done"); err != nil {
			return "", err
		}
	}
	same, err := sameSteps(slices.Concat(first, rest.Out.Lines()), whole.Out.Lines())
	if err != nil {
		return "", fmt.Errorf("restored after %d lines: %w", len(first), err)
	}
	return fmt.Sprintf("%s, restored after step %d; %s, snapshot %d MiB", same, len(first), times(saved, took), sizeOf(dir)>>20), nil
}

// sameSteps compares what an interrupted training wrote with what one wrote that
// was not.
func sameSteps(got, want []string) (string, error) {
	if !slices.Equal(got, want) {
		return "", fmt.Errorf("the lines differ:\ninterrupted: %s\nuninterrupted: %s", strings.Join(got, "; "), strings.Join(want, "; "))
	}
	return fmt.Sprintf("%d steps equal to the last bit", len(want)-1), nil
}

// train starts a training.
func (t *test) train(ctx context.Context, p *python, args []string) (*rig.Container, error) {
	c, err := t.newTraining(ctx, p, args, 0)
	if err != nil {
		return nil, err
	}
	return c, errors.Join(c.NewTask(ctx, ""), c.Start(ctx))
}

func (t *test) newTraining(ctx context.Context, p *python, args []string, gpu int) (*rig.Container, error) {
	opts, err := t.container(gpu)
	if err != nil {
		return nil, err
	}
	mounts, err := p.mounts(t.scratch)
	if err != nil {
		return nil, err
	}
	opts = append(opts, oci.WithAnnotations(t.annotations()), oci.WithMounts(mounts), oci.WithEnv(append([]string{"HOME=/scratch", "TMPDIR=/scratch", "PYTHONDONTWRITEBYTECODE=1"}, slices.Concat(p.env, noMulticast)...)))
	c, err := rig.New(ctx, t.d, rig.Spec{ID: t.id("train"), Runtime: runtimeName, Image: t.image, Args: args, Opts: opts})
	if err == nil {
		t.cleanup(c.Remove)
	}
	return c, err
}

// waitForLine waits for a line that begins with one of the texts.
func waitForLine(ctx context.Context, c *rig.Container, texts ...string) error {
	return c.Wait(ctx, strconv.Quote(texts[0]), func(lines []string) (bool, error) {
		return slices.ContainsFunc(lines, func(line string) bool {
			return slices.ContainsFunc(texts, func(text string) bool { return strings.HasPrefix(line, text) })
		}), nil
	})
}

// sizeOf is the size of all files of a directory.
func sizeOf(dir string) int64 {
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		return 0
	}
	return sizes(files)
}

// sizes is the size of all the files that there are.
func sizes(files []string) int64 {
	var sum int64
	for _, f := range files {
		if st, err := os.Stat(f); err == nil {
			sum += st.Size()
		}
	}
	return sum
}
