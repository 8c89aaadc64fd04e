// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Sandbox is a pod of a daemon that serves the CRI, made by the calls that the
// kubelet makes, without a kubelet.
type Sandbox struct {
	ID string
	// Logs is the directory of its containers' logs.
	Logs string

	d       *Daemon
	config  *cri.PodSandboxConfig
	network cri.NamespaceMode
}

// SandboxConfig says what a sandbox is.
type SandboxConfig struct {
	// Name is the pod's, and its hostname.
	Name string
	// Annotations are the pod's.
	Annotations map[string]string
	// HostNetwork gives it the host's network instead of one of its own.
	HostNetwork bool
}

// PodContainer is a container of a sandbox.
type PodContainer struct {
	Name, Image string
	Command     []string
	// Env has "NAME=value".
	Env []string
	// Mounts are paths of this machine, which it gets at the same paths.
	Mounts []string
	// CDI are devices, as "hetgpu.io/gpu=all".
	CDI []string
}

// What the kubelet hides of /proc, and makes read-only, in containers that may not
// see all of it (Kubernetes 1.36, pkg/securitycontext).
var (
	maskedPaths = []string{
		"/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
		"/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware", "/sys/devices/virtual/powercap",
	}
	readonlyPaths = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
)

// Runtime is the daemon's CRI.
func (d *Daemon) Runtime() (cri.RuntimeServiceClient, error) {
	conn, ok := d.Client.Conn().(grpc.ClientConnInterface)
	if !ok {
		return nil, fmt.Errorf("containerd is asked by %T, not by gRPC", d.Client.Conn())
	}
	return cri.NewRuntimeServiceClient(conn), nil
}

// RunSandbox makes a pod's sandbox and starts it.
func (d *Daemon) RunSandbox(ctx context.Context, c SandboxConfig) (*Sandbox, error) {
	runtime, err := d.Runtime()
	if err != nil {
		return nil, err
	}
	s := &Sandbox{d: d, Logs: filepath.Join(d.Dir, "pods", c.Name), network: cri.NamespaceMode_POD}
	if c.HostNetwork {
		s.network = cri.NamespaceMode_NODE
	}
	if err := os.MkdirAll(s.Logs, 0o700); err != nil {
		return nil, err
	}
	s.config = &cri.PodSandboxConfig{
		Metadata:     &cri.PodSandboxMetadata{Name: c.Name, Namespace: "default", Uid: c.Name},
		LogDirectory: s.Logs, Annotations: c.Annotations,
		Labels: map[string]string{"io.kubernetes.pod.name": c.Name, "io.kubernetes.pod.namespace": "default"},
		Linux: &cri.LinuxPodSandboxConfig{
			CgroupParent:    "/" + d.marker,
			SecurityContext: &cri.LinuxSandboxSecurityContext{NamespaceOptions: s.namespaces()},
		},
	}
	if !c.HostNetwork {
		s.config.Hostname = c.Name
	}
	answer, err := runtime.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: s.config, RuntimeHandler: d.cri.Handler.Name})
	if err != nil {
		return nil, fmt.Errorf("run the sandbox of pod %s: %w", c.Name, err)
	}
	s.ID = answer.GetPodSandboxId()
	return s, nil
}

// namespaces are those of a pod whose containers don't see one another's processes.
func (s *Sandbox) namespaces() *cri.NamespaceOption {
	return &cri.NamespaceOption{Network: s.network, Pid: cri.NamespaceMode_CONTAINER}
}

// Start makes a container and starts it. It returns the container's ID also if
// that could not be started.
func (s *Sandbox) Start(ctx context.Context, c PodContainer) (id string, err error) {
	runtime, err := s.d.Runtime()
	if err != nil {
		return "", err
	}
	config := &cri.ContainerConfig{
		Metadata: &cri.ContainerMetadata{Name: c.Name},
		Image:    &cri.ImageSpec{Image: c.Image, UserSpecifiedImage: c.Image},
		Command:  c.Command,
		LogPath:  c.Name + ".log",
		Labels: map[string]string{
			"io.kubernetes.container.name": c.Name, "io.kubernetes.pod.name": s.config.GetMetadata().GetName(),
			"io.kubernetes.pod.namespace": s.config.GetMetadata().GetNamespace(),
		},
		Linux: &cri.LinuxContainerConfig{
			Resources: &cri.LinuxContainerResources{},
			SecurityContext: &cri.LinuxContainerSecurityContext{
				NamespaceOptions: s.namespaces(), MaskedPaths: maskedPaths, ReadonlyPaths: readonlyPaths,
			},
		},
	}
	for _, e := range c.Env {
		name, value, _ := strings.Cut(e, "=")
		config.Envs = append(config.Envs, &cri.KeyValue{Key: name, Value: []byte(value)})
	}
	for _, m := range c.Mounts {
		config.Mounts = append(config.Mounts, &cri.Mount{ContainerPath: m, HostPath: m})
	}
	for _, device := range c.CDI {
		config.CDIDevices = append(config.CDIDevices, &cri.CDIDevice{Name: device})
	}
	made, err := runtime.CreateContainer(ctx, &cri.CreateContainerRequest{PodSandboxId: s.ID, Config: config, SandboxConfig: s.config})
	if err != nil {
		return "", fmt.Errorf("make container %s of pod %s: %w", c.Name, s.config.GetMetadata().GetName(), err)
	}
	id = made.GetContainerId()
	if _, err := runtime.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: id}); err != nil {
		return id, fmt.Errorf("start container %s of pod %s: %w", c.Name, s.config.GetMetadata().GetName(), err)
	}
	return id, nil
}

// Log is what a container has written, on both of its outputs; nothing if it has
// not begun to. The lines are as they are in the file: time, stream, tag and text.
func (s *Sandbox) Log(container string) (string, error) {
	text, err := os.ReadFile(filepath.Join(s.Logs, container+".log"))
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	return string(text), err
}

// Exec runs a command in a container and returns what it wrote.
func (s *Sandbox) Exec(ctx context.Context, id string, args ...string) (string, error) {
	runtime, err := s.d.Runtime()
	if err != nil {
		return "", err
	}
	answer, err := runtime.ExecSync(ctx, &cri.ExecSyncRequest{ContainerId: id, Cmd: args})
	if err == nil && answer.GetExitCode() != 0 {
		err = fmt.Errorf("%q ended with %d: %s", args, answer.GetExitCode(), answer.GetStderr())
	}
	return string(answer.GetStdout()), err
}

// Checkpoint writes a container's archive, as for the kubelet's API.
func (s *Sandbox) Checkpoint(ctx context.Context, id, archive string) error {
	runtime, err := s.d.Runtime()
	if err != nil {
		return err
	}
	_, err = runtime.CheckpointContainer(ctx, &cri.CheckpointContainerRequest{ContainerId: id, Location: archive})
	return err
}

// Status is what the CRI says of a container.
func (s *Sandbox) Status(ctx context.Context, id string) (*cri.ContainerStatus, error) {
	runtime, err := s.d.Runtime()
	if err != nil {
		return nil, err
	}
	answer, err := runtime.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: id})
	return answer.GetStatus(), err
}

// Address is the pod's; "" for the host's.
func (s *Sandbox) Address(ctx context.Context) (string, error) {
	runtime, err := s.d.Runtime()
	if err != nil {
		return "", err
	}
	answer, err := runtime.PodSandboxStatus(ctx, &cri.PodSandboxStatusRequest{PodSandboxId: s.ID})
	return answer.GetStatus().GetNetwork().GetIp(), err
}

// Remove ends the sandbox with its containers, and removes them.
func (s *Sandbox) Remove(ctx context.Context) error {
	runtime, err := s.d.Runtime()
	if err != nil {
		return err
	}
	// The kubelet removes again what it has removed, too.
	if _, err := runtime.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: s.ID}); err != nil {
		return fmt.Errorf("stop the sandbox of pod %s: %w", s.config.GetMetadata().GetName(), err)
	}
	_, err = runtime.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: s.ID})
	return err
}
