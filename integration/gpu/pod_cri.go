// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/hetgpu/containerd-shim-hetgpu/integration/testbed"
)

// criPods makes pods by the calls that the kubelet makes.
type criPods struct{ n *node }

var _ pods = criPods{}

// A log is a file.
func (c criPods) logInterval() time.Duration { return 20 * time.Millisecond }

func (c criPods) start(ctx context.Context, name string, command []string, annotations map[string]string) (running, error) {
	s, err := c.n.d.RunSandbox(ctx, testbed.SandboxConfig{Name: name, Annotations: annotations, HostNetwork: c.n.onHost != nil})
	if err != nil {
		return nil, err
	}
	p := &criPod{s: s, archive: filepath.Join(c.n.snapshots, name+".tar")}
	p.container, err = s.Start(ctx, testbed.PodContainer{
		Name: inPod, Image: podImage, Command: command, Env: c.n.t.podEnv(), Mounts: c.n.t.podMounts(), CDI: []string{c.n.device},
	})
	return p, err
}

// criPod is a sandbox with one container.
type criPod struct {
	s         *testbed.Sandbox
	container string
	archive   string
}

func (p *criPod) log(context.Context) (string, error) {
	text, err := p.s.Log(inPod)
	return logged(text), err
}

// logged takes the text out of a log's lines: time, stream, tag and text
// (Kubernetes, CRI logging format). A line of the container's may be several there.
func logged(log string) string {
	var b strings.Builder
	for line := range strings.Lines(log) {
		fields := strings.SplitN(line, " ", 4)
		if len(fields) < 4 || !strings.HasSuffix(line, "\n") {
			continue
		}
		if fields[2] == "P" {
			fields[3] = strings.TrimSuffix(fields[3], "\n")
		}
		b.WriteString(fields[3])
	}
	return b.String()
}

func (p *criPod) checkpoint(ctx context.Context) (string, error) {
	return p.archive, p.s.Checkpoint(ctx, p.container, p.archive)
}

func (p *criPod) exec(ctx context.Context, args ...string) (string, error) {
	return p.s.Exec(ctx, p.container, args...)
}

func (p *criPod) address(ctx context.Context) (string, error) { return p.s.Address(ctx) }

func (p *criPod) state(ctx context.Context) (string, error) {
	status, err := p.s.Status(ctx, p.container)
	if err != nil || status.GetState() == cri.ContainerState_CONTAINER_RUNNING {
		return "running", err
	}
	return fmt.Sprintf("%s with %d, %s: %s", status.GetState(), status.GetExitCode(), status.GetReason(), status.GetMessage()), nil
}

func (p *criPod) remove(ctx context.Context) error { return p.s.Remove(ctx) }
