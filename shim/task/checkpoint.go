// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package task

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/containerd/api/types/runc/options"
	"github.com/containerd/errdefs"
	"github.com/containerd/log"
	"github.com/containerd/typeurl/v2"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/logfields"
	"github.com/hetgpu/containerd-shim-hetgpu/oci"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/checkpoint"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/criu"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/runc"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/snapshot"
	"github.com/hetgpu/containerd-shim-hetgpu/shim/shortstop"
)

const (
	// pausedForCheckpoint is how long ago a pause may be that a checkpoint's
	// client made for it: containerd's client asks for both in one call.
	pausedForCheckpoint = 2 * time.Second
	// watchInterval is how often it is looked whether containerd removed the
	// directory, which it does when its client has gone.
	watchInterval = 100 * time.Millisecond
	// memoryTracking is CRIU's name for what it needs to leave memory of processes
	// in an earlier snapshot.
	memoryTracking = "mem_dirty_track"
)

// Checkpoint saves the container, all of it or nothing.
func (s *service) Checkpoint(ctx context.Context, r *taskapi.CheckpointTaskRequest) (*emptypb.Empty, error) {
	c := s.container(r.ID)
	if c == nil {
		return s.TTRPCTaskService.Checkpoint(ctx, r)
	}
	if c.leftPaused() {
		// Nobody would resume it after this one.
		s.resumeAbandoned(ctx, c)
		return nil, status(fmt.Errorf("checkpoint %s: it was paused for another one, whose client has gone, and goes on now: try again: %w", r.ID, errdefs.ErrFailedPrecondition))
	}
	ctx, end, err := c.begin(log.WithLogger(ctx, log.G(ctx).WithField(logfields.ID, c.id)), opCheckpoint)
	if err != nil {
		return nil, status(err)
	}
	// The client that paused the container for this will resume it, unless it
	// has gone.
	ours := c.pausedFor(time.Now())
	err = s.checkpoint(ctx, c, r)
	gone := err != nil && ctx.Err() != nil && !errors.Is(context.Cause(ctx), errResuming)
	end()
	if gone && ours {
		s.resumeAbandoned(ctx, c)
	}
	if err != nil {
		log.G(ctx).WithError(err).Error("checkpoint failed")
		return nil, status(fmt.Errorf("checkpoint %s: %w", r.ID, err))
	}
	return &emptypb.Empty{}, nil
}

// pausedFor tells whether a checkpoint that begins now is what the container
// was paused for. containerd's client asks for the state first, and pauses what
// runs; what it finds paused it leaves so (client/task.go, Checkpoint). So a pause
// after which somebody has asked for the state is not this checkpoint's.
func (c *container) pausedFor(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.pausedAt.IsZero() && now.Sub(c.pausedAt) < pausedForCheckpoint
}

// asked notes that somebody asked for the container's state.
func (c *container) asked() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pausedAt = time.Time{}
}

func (s *service) checkpoint(ctx context.Context, c *container, r *taskapi.CheckpointTaskRequest) error {
	abandon := func() { c.interrupt(errAbandoned) }
	stop := watch(ctx, r.Path, abandon)
	defer stop()
	opts, err := c.checkpointOptions(r)
	if err != nil {
		return err
	}
	told := &progress{}
	if opts.short {
		if told, err = openProgress(r.Path); err != nil {
			return err
		}
		defer told.close(r.Path)
		end := watch(ctx, filepath.Join(r.Path, shortstop.ProgressName), abandon)
		defer end()
	}
	if s.configErr != nil {
		return s.configErr
	}
	if (c.gpus.AMD || c.gpus.Intel) && c.policy.Engine != oci.EngineNone {
		return fmt.Errorf("%w: this version saves the state of NVIDIA GPUs only, and the container has another vendor's; "+
			"if its programs use none, say so by the annotation %s=none", gpuplugin.ErrUnsupported, oci.AnnotationEngine)
	}
	dump := opts.dump
	if err := s.standing(ctx, c); err != nil {
		return err
	}
	if err := c.unseenGPUs(); err != nil {
		return err
	}
	if err := c.waitExecs(ctx); err != nil {
		return err
	}
	if err := s.checkLibrary(c); err != nil {
		return err
	}
	running, err := c.running()
	if err != nil {
		return err
	}
	running.Timeout, running.Ending = opts.timeout, c.ending()
	running.Encryption = checkpoint.Encryption(s.config.Encryption)
	tool, err := s.criu(ctx, c)
	if err != nil {
		return err
	}
	lock, err := s.networkLock(ctx, c, tool, dump.TCPEstablished)
	if err != nil {
		return err
	}
	if opts.Parent != "" && criu.HasFeatureOnce(ctx, tool.Path, s.config.StateDir, memoryTracking) && c.leavesIn(ctx, r.Path, opts.Parent) {
		dump.Parent = opts.Parent
	}
	// CRIU adds to whatever has its images, so where it can, a client of containerd's may name any.
	memoryParent := opts.Parent
	if dump.Parent != "" && !opts.short {
		memoryParent = ""
	}
	conf := c.criuOptions(s, dump.TCPEstablished)
	conf.Timeout = opts.timeout
	conf.NetworkLock, conf.ExternalUnixSockets, conf.FileLocks = lock, dump.UnixSockets, dump.FileLocks
	conf.DeletedFiles = true // what a restore would miss, running.Checkpoint refuses
	if conf.ExternalMounts, err = c.hiddenMounts(running.Init); err != nil {
		return err
	}
	if err := conf.Write(c.criuConfig()); err != nil {
		return err
	}
	defer os.Remove(c.criuConfig())
	// runc has it written again, with the time that is left by then.
	dump.Config = conf
	request := checkpoint.Request{Dump: dump, MemoryParent: memoryParent, Keep: opts.KeepOnGPU, Progress: told, Manifest: snapshot.Manifest{
		Container: c.saved, Library: c.injected.Library(), EngineReason: snapshot.Text(c.engineReason),
		Host: s.host(ctx, c, tool),
		Options: snapshot.Options{
			TCPEstablished: dump.TCPEstablished, ExternalUnixSockets: dump.UnixSockets,
			FileLocks: dump.FileLocks, Terminal: dump.Terminal, Incremental: opts.Parent != "", WholePages: opts.Parent != "" && dump.Parent == "",
		},
	}}
	if opts.Layer || opts.Container != nil {
		beside, err := c.companion(r.Path, &opts.Options)
		if err != nil {
			return err
		}
		defer func() { _ = beside.close() }() // what was staged has no name
		request.Companion = beside
	}
	if dump.Parent != "" {
		if err := c.tracked(""); err != nil {
			return err
		}
	}
	m, err := running.Checkpoint(ctx, request)
	if err != nil {
		return err
	}
	if dump.Parent != "" {
		if err := c.tracked(r.Path); err != nil {
			log.G(ctx).WithError(err).Warn("the next incremental dump will have all memory of the processors")
		}
	}
	for _, p := range m.Phases {
		log.G(ctx).WithField(logfields.Phase, p.Name).WithField(logfields.Seconds, p.Seconds).Info("checkpoint")
	}
	return nil
}

// checkpointOptions is what a request wants.
type checkpointOptions struct {
	dump    runc.Dump
	timeout time.Duration
	// short says that `hetgpu checkpoint` sent them, and Options has what only
	// it can want.
	short bool
	shortstop.Options
}

// checkpointOptions reads the options, which only some clients send.
func (c *container) checkpointOptions(r *taskapi.CheckpointTaskRequest) (checkpointOptions, error) {
	o := checkpointOptions{dump: runc.Dump{Dir: r.Path, Exit: c.policy.CheckpointExit}, timeout: c.timeout}
	var err error
	if o.short, err = o.Unpack(r.Options); err != nil {
		return o, fmt.Errorf("checkpoint options: %w", err)
	}
	switch {
	case r.Options.GetValue() == nil:
	case o.short:
		if o.Timeout > 0 {
			o.timeout = o.Timeout
		}
		o.dump.Exit, o.dump.TCPEstablished, o.dump.UnixSockets = o.Exit, o.TCPEstablished, o.UnixSockets
		o.dump.Terminal, o.dump.FileLocks = o.Terminal, o.FileLocks
	default:
		opts := &options.CheckpointOptions{}
		if err := typeurl.UnmarshalTo(r.Options, opts); err != nil {
			return o, fmt.Errorf("checkpoint options: %w", err)
		}
		o.dump = runc.Dump{
			Dir: r.Path, WorkDir: opts.WorkPath, Exit: opts.Exit, EmptyNamespaces: opts.EmptyNamespaces,
			TCPEstablished: opts.OpenTcp, UnixSockets: opts.ExternalUnixSockets, Terminal: opts.Terminal, FileLocks: opts.FileLocks,
		}
		o.Parent = opts.ParentPath
	}
	o.dump.TCPEstablished = o.dump.TCPEstablished || c.policy.TCP == oci.TCPEstablished
	return o, nil
}

// criuOptions is the part of CRIU's configuration that a dump and a restore
// have in common.
func (c *container) criuOptions(s *service, tcpEstablished bool) runc.CRIUConfig {
	return runc.CRIUConfig{
		Timeout: c.timeout, LogLevel: s.config.CRIU.LogLevel, User: c.userCRIU, AllowUprobes: c.allowUprobes,
		TCPEstablished: tcpEstablished && c.policy.TCP != oci.TCPClose, TCPClose: c.policy.TCP == oci.TCPClose,
	}
}

// criu finds CRIU and makes runc use it.
func (s *service) criu(ctx context.Context, c *container) (criu.Tool, error) {
	tool, err := criu.Probe(ctx, s.config.CRIU.Path)
	if err != nil {
		return tool, err
	}
	c.runc.CRIU, c.allowUprobes = tool.Path, !tool.Version.Less(uprobesVersion)
	return tool, criu.CheckOnce(ctx, tool.Path, s.config.StateDir)
}

// host says what the snapshot is made with.
func (s *service) host(ctx context.Context, c *container, tool criu.Tool) snapshot.Host {
	h := snapshot.Host{Arch: runtime.GOARCH, CRIU: tool.Version.String()}
	var uts unix.Utsname
	if err := unix.Uname(&uts); err == nil {
		h.Kernel = unix.ByteSliceToString(uts.Release[:])
	}
	version, err := c.runc.Version(ctx)
	if err != nil {
		log.G(ctx).WithError(err).Warn("the version of runc could not be found out")
	}
	h.Runc = version
	return h
}

// watch calls gone once the directory, if it is there now, is there no more.
// The returned function ends the watch, after a last look: what failed because
// the directory is gone may have failed before anybody looked.
func watch(ctx context.Context, dir string, gone func()) (stop func()) {
	before, err := os.Stat(dir)
	if err != nil {
		return func() {}
	}
	vanished := func() bool {
		now, err := os.Stat(dir)
		return errors.Is(err, os.ErrNotExist) || err == nil && !os.SameFile(before, now)
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	told := false
	go func() {
		defer close(ended)
		tick := time.NewTicker(watchInterval)
		defer tick.Stop()
		for !told {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if vanished() {
				told = true
				gone()
			}
		}
	}()
	return func() {
		cancel()
		<-ended
		if !told && vanished() {
			gone()
		}
	}
}
