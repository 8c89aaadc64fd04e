// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package task

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2/process"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/ipcwatch"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/cgroup"
	"github.com/hetgpu/containerd-shim-hetgpu/oci"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/checkpoint"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/runc"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/snapshot"
	"github.com/hetgpu/containerd-shim-hetgpu/shim/runcopts"
)

// container is what we know of a container beside the stock service.
type container struct {
	id     string
	bundle string
	runc   runc.Container
	policy oci.Policy
	gpus   oci.GPUs
	gpu    checkpoint.GPU
	// written are the GPUs of the spec as we wrote it: a restored container can
	// have devices that a hook had added to the saved one.
	written oci.GPUs
	// injected is what is in front of its GPU driver; nil for nothing.
	injected *injected
	// engineReason is why its engine is not the one that was configured.
	engineReason string
	// guard watches for legacy CUDA IPC; nil if nobody needs to know.
	guard *ipcwatch.Guard
	// libraryDirs are where else libcuda may be.
	libraryDirs []string
	// saved describes the container in a manifest.
	saved snapshot.Container
	// userCRIU is the user's own CRIU configuration file, "" for none.
	userCRIU string
	// hostNetwork says that the container shares the host's network, ownUTS
	// that its hostname is its own.
	hostNetwork, ownUTS bool
	// podUTS is the UTS namespace of its pod, and sandbox the id of the pod's
	// sandbox; both are "" for none.
	podUTS, sandbox string
	// devices are those of the spec.
	devices []specs.LinuxDevice
	// given are the places in the container at which its spec has something,
	// and external the mounts of a restore that no spec may have.
	given    []string
	external []runc.ExternalMount
	// skippedHooks says that NVIDIA's hooks are to be run at a restore.
	skippedHooks bool
	timeout      time.Duration
	// allowUprobes says that CRIU knows this option.
	allowUprobes bool
	// criuWork is where the stock service makes CRIU work at a restore.
	criuWork string
	// request is the one by which the container was created.
	request *taskapi.CreateTaskRequest
	// restore is not nil for a container that is created from a checkpoint, and
	// named if it is one that its annotation names.
	restore *checkpoint.Restore
	named   *named

	mu  sync.Mutex
	pid int // guarded by mu
	// group is recorded once: the container's programs may move, and after its
	// end the PID may be another's.
	group   processGroup // guarded by mu
	current *operation   // guarded by mu
	// execs are the processes that are entering the container now; quiet, if
	// there is one, is closed when none is.
	execs int           // guarded by mu
	quiet chan struct{} // guarded by mu
	// paused is what Pause locked, in the state in which it was found.
	paused []gpuplugin.Process // guarded by mu
	// pausedAt is when Pause ended, zero when the container runs.
	pausedAt time.Time // guarded by mu
	// awaited resumes the container if the checkpoint does not come for which it was
	// paused, nil if none has to.
	awaited *time.Timer // guarded by mu
	// resumed says that we resumed the container because the client that had
	// paused it for a checkpoint was gone.
	resumed bool // guarded by mu
}

// newContainer reads the bundle that containerd prepared, edits its spec, and
// replaces the request's options by what the stock service understands.
func (s *service) newContainer(ctx context.Context, r *taskapi.CreateTaskRequest) (*container, error) {
	ns, err := namespaces.NamespaceRequired(ctx)
	if err != nil {
		return nil, err
	}
	opts, err := runcopts.Decode(r.Options)
	if err != nil {
		return nil, err
	}
	if r.Options, err = runcopts.Encode(opts); err != nil {
		return nil, err
	}
	spec, err := oci.Load(r.Bundle)
	if err != nil {
		return nil, err
	}
	c := &container{id: r.ID, bundle: r.Bundle, request: r, timeout: time.Duration(s.config.Timeout)}
	if c.policy, err = oci.ParsePolicy(spec.Annotations); err != nil {
		return nil, fmt.Errorf("%w: %w", err, errdefs.ErrInvalidArgument)
	}
	if c.policy.Timeout > 0 {
		c.timeout = c.policy.Timeout
	}
	// As the stock service finds the runtime (process.NewRunc, runc.newInit).
	root := opts.Root
	if root == "" {
		root = process.RuncRoot
	}
	c.runc = runc.Container{
		ID: r.ID, Bundle: r.Bundle, Namespace: ns, Binary: opts.BinaryName,
		Root: filepath.Join(root, ns), SystemdCgroup: opts.SystemdCgroup, LogDir: s.config.LogDir,
	}
	if c.criuWork = opts.CriuWorkPath; c.criuWork == "" {
		c.criuWork = filepath.Join(r.Bundle, "work")
	}
	c.gpus = oci.FindGPUs(spec)
	if c.gpu, err = s.gpuOf(ctx, c, spec); err != nil {
		return nil, err
	}
	if err := s.findNamed(ctx, c); err != nil {
		return nil, err
	}
	if r.Checkpoint != "" {
		if err := s.prepareRestore(ctx, c, spec); err != nil {
			c.abandon(ctx)
			return nil, fmt.Errorf("restore from %s: %w", c.source(), err)
		}
	}
	if err := s.writeSpec(ctx, c, spec); err != nil {
		c.abandon(ctx)
		return nil, err
	}
	return c, nil
}

// writeSpec makes the spec what the container is to have.
func (s *service) writeSpec(ctx context.Context, c *container, spec *oci.Spec) error {
	if err := c.restoreNVIDIA(ctx, spec); err != nil {
		return err
	}
	if err := s.inject(c, spec); err != nil {
		return err
	}
	c.readSpec(spec)
	return spec.Save()
}

// abandon ends what was begun for a container that there will not be.
func (c *container) abandon(ctx context.Context) {
	c.mu.Lock()
	c.stopAwaiting()
	c.mu.Unlock()
	c.endRestore(ctx)
	c.eject(ctx)
}

// gpuOf chooses how the container's GPU state is captured.
func (s *service) gpuOf(ctx context.Context, c *container, spec *oci.Spec) (checkpoint.GPU, error) {
	if c.policy.Engine == oci.EngineNone || c.policy.Engine == oci.EngineAuto && !c.gpus.NVIDIA {
		return gpuplugin.None{}, nil
	}
	if !c.gpus.NVIDIA {
		return nil, fmt.Errorf("annotation %s is %q, and the container has no NVIDIA device: %w", oci.AnnotationEngine, c.policy.Engine, errdefs.ErrInvalidArgument)
	}
	var err error
	if c.injected, err = s.wantSplit(ctx, c, spec); err != nil {
		return nil, err
	}
	s.helper.Warm(ctx)
	var opts []nvidia.Option
	if !c.policy.NoLegacyIPC {
		c.guard = ipcwatch.NewGuard()
		opts = append(opts, nvidia.WithSharing(sharing{c.guard}))
	}
	return s.split(ctx, c, nvidia.NewEngine(s.helper, opts...)), nil
}

// readSpec takes from the spec what later operations need, and makes runc pass
// our CRIU configuration file on.
func (c *container) readSpec(spec *oci.Spec) {
	c.saved = snapshot.Container{
		ID: c.id, Namespace: c.runc.Namespace, Hostname: spec.Hostname, CgroupsPath: spec.Linux.CgroupsPath,
	}
	c.devices, c.given, c.written = spec.Linux.Devices, given(spec), oci.FindGPUs(spec)
	c.skippedHooks = len(oci.SkippedHooks(spec)) > 0
	c.libraryDirs = libraryDirs(spec)
	c.hostNetwork = true
	for _, ns := range spec.Linux.Namespaces {
		switch ns.Type {
		case specs.NetworkNamespace:
			c.hostNetwork = false
		case specs.UTSNamespace:
			c.ownUTS, c.podUTS = ns.Path == "", ns.Path
		}
	}
	c.sandbox = spec.Annotations[oci.AnnotationSandboxID]
	user, named := spec.Annotations[oci.AnnotationCRIUConfig]
	if !named {
		user = runc.DefaultCRIUConfig
	}
	c.userCRIU = user
	spec.SetAnnotation(oci.AnnotationCRIUConfig, c.criuConfig())
}

// criuConfig is the file with CRIU's configuration. runc learns its name when the
// container is created.
func (c *container) criuConfig() string { return filepath.Join(c.bundle, runc.CRIUConfigName) }

// processGroup is a control group. All of a container's processes are in its
// own or in one below it.
type processGroup interface {
	checkpoint.Freezer
	Path() string
}

// setPID records the first process, and on the first call its control group.
func (c *container) setPID(pid int) {
	if pid == 0 {
		return // created from a checkpoint, it has none yet
	}
	group, err := cgroup.Named(pid, c.saved.CgroupsPath)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pid = pid
	if err == nil && c.group == nil {
		c.group = group
	}
}

// running returns the container as the state machine wants it. Whether it does
// run the stock service knows ([service.standing]).
func (c *container) running() (*checkpoint.Container, error) {
	c.mu.Lock()
	pid, group := c.pid, c.group
	c.mu.Unlock()
	if pid == 0 || group == nil {
		return nil, fmt.Errorf("container %s is not running: %w", c.id, errdefs.ErrFailedPrecondition)
	}
	return &checkpoint.Container{
		Init: pid, GPU: c.gpu, Cgroup: group, Runtime: unprobed{&c.runc, group, c.guard},
		Minors: c.gpus.NVIDIAMinors, Timeout: c.timeout,
	}, nil
}

// standing fails unless the container's processes are there. Its PID may be a
// stranger's otherwise, so this comes before anything is done to them.
func (s *service) standing(ctx context.Context, c *container) error {
	return isStanding(s.TTRPCTaskService.State(ctx, &taskapi.StateRequest{ID: c.id}))
}

func isStanding(st *taskapi.StateResponse, err error) error {
	if err != nil {
		return errgrpc.ToNative(err)
	}
	switch st.Status {
	case tasktypes.Status_RUNNING, tasktypes.Status_PAUSED, tasktypes.Status_PAUSING:
		return nil
	}
	return fmt.Errorf("the container is %s: %w", strings.ToLower(st.Status.String()), errdefs.ErrFailedPrecondition)
}

// stateDuring is the answer to State while the stock service could not give
// one, nil if it can.
func (c *container) stateDuring() *taskapi.StateResponse {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current == nil {
		return nil
	}
	st := &taskapi.StateResponse{
		ID: c.id, Bundle: c.bundle, Pid: uint32(c.pid),
		Stdin: c.request.Stdin, Stdout: c.request.Stdout, Stderr: c.request.Stderr, Terminal: c.request.Terminal,
	}
	switch c.current.op {
	case opRestore:
		st.Status = tasktypes.Status_CREATED
	case opPause:
		st.Status = tasktypes.Status_PAUSING
	case opResume:
		st.Status = tasktypes.Status_PAUSED
	default:
		return nil
	}
	return st
}
