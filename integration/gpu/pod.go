// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/hetgpu/containerd-shim-hetgpu/integration/rig"
	"github.com/hetgpu/containerd-shim-hetgpu/integration/testbed"
)

const (
	podImage     = "test.hetgpu.local/gpuload:1"
	sandboxImage = "test.hetgpu.local/pause:1"
	// inPod is the name of the container in each pod.
	inPod = "main"
)

// handlerTable is the handler of docs/kubernetes.md, for cgroups without systemd.
const handlerTable = `[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.hetgpu]
  runtime_type = "io.hetgpu.v2"
  pod_annotations = ["io.hetgpu.*", "io.hetgpu.*/*"]
  container_annotations = ["io.hetgpu.*", "io.hetgpu.*/*"]
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.hetgpu.options]
  SystemdCgroup = false
`

// node is a containerd of its own that serves the CRI. Its pods have gpuload in
// their image, and the GPU by CDI.
type node struct {
	t *test
	d *testbed.Daemon
	// cdi has the CDI specifications, snapshots the archives that pods name.
	cdi, snapshots string
	// device is the CDI device that pods get.
	device string
	// onHost says that pods have the host's network, and why.
	onHost error
	// pods makes them.
	pods pods
}

// startNode starts one, which a cleanup ends.
func (t *test) startNode(ctx context.Context) (*node, error) {
	dir := filepath.Join(t.disk, t.id("node"))
	n := &node{t: t, cdi: filepath.Join(dir, "cdi"), snapshots: filepath.Join(dir, "snapshots")}
	for _, d := range []string{n.cdi, n.snapshots} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, err
		}
	}
	conf := filepath.Join(dir, "config.toml")
	path, err := t.programPath()
	if err != nil {
		return nil, err
	}
	n.d, err = testbed.Start(ctx, testbed.Config{Path: path, Env: append(t.gpu.hostEnv, "HETGPU_CONFIG="+conf), CRI: &testbed.CRI{
		SandboxImage: sandboxImage, Handler: testbed.Handler{Name: "hetgpu", Table: handlerTable}, Subnet: 90,
		More: fmt.Sprintf("cdi_spec_dirs = [%q]", n.cdi),
	}})
	if err != nil {
		return nil, err
	}
	t.cleanup(func(ctx context.Context) error {
		log := fmt.Sprintf("containerd-%s.log", filepath.Base(dir))
		return errors.Join(t.keepLog(n.d.LogPath(), log), n.d.Stop(ctx), os.RemoveAll(dir))
	})
	text := fmt.Sprintf("log_dir = %q\nstate_dir = %q\nrestore.dirs = [%q, %q]\n", filepath.Join(t.out, "failures"), filepath.Join(dir, "state"),
		n.snapshots, n.d.KubeletCheckpoints())
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		return nil, err
	}
	if err := n.importImages(ctx); err != nil {
		return nil, err
	}
	return n, n.tryNetwork(ctx)
}

// tryNetwork finds out whether pods can have a network of their own. Kernels for
// virtual machines may lack what that takes.
func (n *node) tryNetwork(ctx context.Context) error {
	s, err := n.d.RunSandbox(ctx, testbed.SandboxConfig{Name: "network"})
	if err != nil {
		n.onHost = err
		return nil
	}
	return s.Remove(ctx)
}

func (n *node) importImages(ctx context.Context) error {
	busybox, err := n.d.Lookup("busybox")
	if err != nil {
		return err
	}
	program := filepath.Join(n.t.programs, "gpuload")
	files, err := libraries(ctx, program)
	if err != nil {
		return err
	}
	files["/gpu/gpuload"] = program
	for _, im := range []testbed.Image{
		{Name: podImage, Busybox: busybox, Files: files},
		{Name: sandboxImage, Busybox: busybox, Command: []string{"/bin/sleep", "2147483647"}},
	} {
		if _, err := n.d.Import(ctx, im); err != nil {
			return err
		}
		if err := n.d.WaitImage(ctx, im.Name); err != nil {
			return err
		}
	}
	return nil
}

// libraries are the C library's files that a program and a driver need, by their
// paths in an image, which are the host's.
func libraries(ctx context.Context, program string) (map[string]string, error) {
	out, err := exec.CommandContext(ctx, "ldd", program).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("ldd %s: %w\n%s", program, err, out)
	}
	files := map[string]string{}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 2 && filepath.IsAbs(fields[0]):
			files[fields[0]] = fields[0]
		case len(fields) > 2 && fields[0] == "libc.so.6":
			dir := filepath.Dir(fields[2])
			for _, name := range []string{"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libutil.so.1", "libgcc_s.so.1", "libstdc++.so.6"} {
				file := filepath.Join(dir, name)
				if _, err := os.Stat(file); err == nil {
					files[file] = file
				}
			}
		}
	}
	if len(files) < 2 {
		return nil, fmt.Errorf("ldd %s says nothing of a C library:\n%s", program, out)
	}
	return files, nil
}

// pods makes pods that have a container "main" with gpuload: by the calls of the
// CRI, or by a kubelet.
type pods interface {
	// start makes a pod. The one that is returned with an error is there, and its
	// container could not be started.
	start(ctx context.Context, name string, command []string, annotations map[string]string) (running, error)
	// logInterval is how often a log may be read.
	logInterval() time.Duration
}

// running is a pod that somebody runs.
type running interface {
	// log has the lines that its container has written.
	log(ctx context.Context) (string, error)
	// checkpoint returns the archive, which lies where pods may name it.
	checkpoint(ctx context.Context) (archive string, err error)
	exec(ctx context.Context, args ...string) (string, error)
	address(ctx context.Context) (string, error)
	// state is "running", or says how the container ended.
	state(ctx context.Context) (string, error)
	remove(ctx context.Context) error
}

// pod is a pod that runs gpuload.
type pod struct {
	*load
	running
}

// run makes a pod and waits until gpuload is at work in it.
func (n *node) run(ctx context.Context, name string, of *load, annotations map[string]string) (*pod, error) {
	r, err := n.start(ctx, name, of, annotations)
	if err != nil {
		return nil, err
	}
	p := &pod{running: r, load: &load{args: of.args, ranks: of.ranks, book: of.book, patience: n.t.patience()}}
	p.Container = &rig.Container{ID: name, Out: rig.NewOutput(), Err: rig.NewOutput()}
	n.follow(ctx, p)
	return p, p.ticks(ctx)
}

// start makes a pod, which a cleanup removes.
func (n *node) start(ctx context.Context, name string, of *load, annotations map[string]string) (running, error) {
	all := n.t.annotations()
	maps.Copy(all, annotations)
	r, err := n.pods.start(ctx, name, of.args, all)
	if r != nil {
		n.t.cleanup(r.remove)
	}
	return r, err
}

// follow passes on what the container writes.
func (n *node) follow(ctx context.Context, p *pod) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	n.t.cleanup(func(context.Context) error { cancel(); return nil })
	go func() {
		seen := 0
		for ticker := time.NewTicker(n.pods.logInterval()); ; {
			// A log that can't be read has no lines, which somebody waits for.
			text, _ := p.log(ctx)
			if whole := strings.LastIndexByte(text, '\n') + 1; whole > seen {
				_, _ = p.Out.Write([]byte(text[seen:whole])) // it never fails
				seen = whole
			}
			select {
			case <-ctx.Done():
				ticker.Stop()
				return
			case <-ticker.C:
			}
		}
	}()
}

// ticks waits for more ticks, and says why there are none.
func (p *pod) ticks(ctx context.Context) error {
	err := p.more(ctx, warmup)
	if err == nil {
		return nil
	}
	state, stateErr := p.state(context.WithoutCancel(ctx))
	return errors.Join(fmt.Errorf("%w; the container of pod %s is %s", err, p.ID, state), stateErr)
}

// podEnv and podMounts are what gpuload needs beside the GPU, which is nothing but
// for the stand-in.
func (t *test) podEnv() []string {
	env := []string{"CUDA_CACHE_DISABLE=1"}
	if m := t.gpu.machine; m != nil {
		env = append(env, "HETGPU_STANDIN="+m.Dir)
	}
	return env
}

func (t *test) podMounts() []string {
	if m := t.gpu.machine; m != nil {
		return []string{m.Dir}
	}
	return nil
}
