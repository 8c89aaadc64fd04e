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
	// logInterval is how often the log of a pod's container is read.
	logInterval = 20 * time.Millisecond
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
// their image, and all else that it needs by CDI.
type node struct {
	t *test
	d *testbed.Daemon
	// cdi has the CDI specifications, snapshots the archives that pods name.
	cdi, snapshots string
	// device is the CDI device that pods get.
	device string
	// onHost says that pods have the host's network, and why.
	onHost error
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
	text := fmt.Sprintf("log_dir = %q\nstate_dir = %q\nrestore.dirs = [%q]\n", filepath.Join(t.out, "failures"), filepath.Join(dir, "state"), n.snapshots)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		return nil, err
	}
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
		return errors.Join(t.keepLog(n.d, log), n.d.Stop(ctx), os.RemoveAll(dir))
	})
	return n, n.importImages(ctx)
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

// pod is a pod that runs gpuload.
type pod struct {
	*load
	sandbox *testbed.Sandbox
	// container is the ID of the container.
	container string
}

// run makes a pod and starts gpuload in it. The pod that is returned with an error
// of the container's has what there is of it.
func (n *node) run(ctx context.Context, name string, of *load, annotations map[string]string) (*pod, error) {
	all := n.t.annotations()
	maps.Copy(all, annotations)
	config := testbed.SandboxConfig{Name: name, Annotations: all, HostNetwork: n.onHost != nil}
	s, err := n.d.RunSandbox(ctx, config)
	if err != nil && n.onHost == nil {
		// Kernels for virtual machines may lack what a network of its own takes.
		n.onHost, config.HostNetwork = err, true
		s, err = n.d.RunSandbox(ctx, config)
	}
	if err != nil {
		return nil, err
	}
	p := &pod{sandbox: s, load: &load{args: of.args, ranks: of.ranks, book: of.book, patience: n.t.patience()}}
	p.Container = &rig.Container{ID: name, Out: rig.NewOutput(), Err: rig.NewOutput()}
	n.t.cleanup(s.Remove)
	c := testbed.PodContainer{Name: inPod, Image: podImage, Command: of.args, CDI: []string{n.device}, Env: []string{"CUDA_CACHE_DISABLE=1"}}
	if m := n.t.gpu.machine; m != nil {
		c.Env, c.Mounts = append(c.Env, "HETGPU_STANDIN="+m.Dir), []string{m.Dir}
	}
	if p.container, err = s.Start(ctx, c); err != nil {
		return p, err
	}
	n.follow(ctx, p)
	return p, nil
}

// follow passes on what the container writes.
func (n *node) follow(ctx context.Context, p *pod) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	n.t.cleanup(func(context.Context) error { cancel(); return nil })
	go func() {
		seen := 0
		for ticker := time.NewTicker(logInterval); ; {
			// A log that can't be read has no lines, which somebody waits for.
			text, _ := p.sandbox.Log(inPod)
			for {
				line, _, whole := strings.Cut(text[min(seen, len(text)):], "\n")
				if !whole {
					break
				}
				seen += len(line) + 1
				p.line(line)
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

// line takes a line of the log: time, stream, tag and text (Kubernetes, CRI
// logging format).
func (p *pod) line(line string) {
	fields := strings.SplitN(line, " ", 4)
	if len(fields) < 4 {
		return
	}
	out, text := p.Out, fields[3]
	if fields[1] == "stderr" {
		out = p.Err
	}
	if fields[2] == "F" {
		text += "\n"
	}
	_, _ = out.Write([]byte(text)) // it never fails
}

// ticks waits for more ticks, and says why there are none.
func (p *pod) ticks(ctx context.Context) error {
	err := p.more(ctx, warmup)
	if err == nil {
		return nil
	}
	status, statusErr := p.sandbox.Status(context.WithoutCancel(ctx), p.container)
	return fmt.Errorf("%w; its container is %s, exit code %d, %s %s; it wrote %q (%w)", err,
		status.GetState(), status.GetExitCode(), status.GetReason(), status.GetMessage(), p.Err.Lines(), statusErr)
}
