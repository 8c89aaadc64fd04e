// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package task

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/containerd/v2/core/mount"
	gorunc "github.com/containerd/go-runc"
	"github.com/containerd/log"
	"golang.org/x/sys/unix"

	"github.com/hetgpu/containerd-shim-hetgpu/internal/cgroup"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/lazyregexp"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/logfields"
	"github.com/hetgpu/containerd-shim-hetgpu/oci"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/checkpoint"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/runc"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/snapshot"
)

// prepareRestore proves that the checkpoint of the container's request can be
// restored, and makes the spec that came with it the new container's.
func (s *service) prepareRestore(ctx context.Context, c *container, spec *oci.Spec) error {
	if s.configErr != nil {
		return s.configErr
	}
	if _, err := s.criu(ctx, c); err != nil {
		return err
	}
	var err error
	if c.restore, err = checkpoint.Open(ctx, c.request.Checkpoint, checkpoint.Target{GPU: c.gpu, Minors: c.gpus.NVIDIAMinors, Library: c.injected.Library(), KeyFile: s.config.Encryption.KeyFile}); err != nil {
		return err
	}
	if c.named != nil {
		// The spec is the new container's own, and the container one of many that
		// could name the snapshot.
		return c.named.fits(spec)
	}
	old := ""
	if m := c.restore.Manifest(); m != nil {
		old = m.Container.ID
	}
	oci.Rename(spec, c.runc.Namespace, old, c.id)
	return nil
}

// endRestore ends what prepareRestore left going on, and removes what only the
// restore had need of.
func (c *container) endRestore(ctx context.Context) {
	if c.restore != nil {
		c.restore.Close(ctx)
	}
	c.named.remove(ctx)
	removeTemporary(ctx, c.request.Checkpoint)
}

// source is what the container is restored from, for people.
func (c *container) source() string { return cmp.Or(c.policy.Restore, c.request.Checkpoint) }

// startRestored restores the container. On error nothing of it runs.
func (s *service) startRestored(ctx context.Context, c *container, r *taskapi.StartRequest) (*taskapi.StartResponse, error) {
	ctx, end, err := c.begin(ctx, opRestore)
	if err != nil {
		return nil, err
	}
	defer end()
	defer c.endRestore(ctx)
	resp, err := s.restore(ctx, c, r)
	if err != nil {
		log.G(ctx).WithError(err).WithField(logfields.ID, c.id).Error("restore failed")
		return nil, fmt.Errorf("restore %s from %s: %w", c.id, c.source(), err)
	}
	s.watchOOM(ctx, c, int(resp.Pid))
	return resp, nil
}

func (s *service) restore(ctx context.Context, c *container, r *taskapi.StartRequest) (*taskapi.StartResponse, error) {
	var opts snapshot.Options
	if m := c.restore.Manifest(); m != nil {
		opts = m.Options
	}
	conf := c.criuOptions(s, opts.TCPEstablished || c.policy.TCP == oci.TCPEstablished)
	conf.ExternalMounts = c.external
	conf.ExternalUnixSockets, conf.FileLocks, conf.Terminal = opts.ExternalUnixSockets, opts.FileLocks, opts.Terminal
	if err := conf.Write(c.criuConfig()); err != nil {
		return nil, err
	}
	defer os.Remove(c.criuConfig())
	if err := c.prepareRoot(ctx); err != nil {
		return nil, err
	}
	resp, err := s.startCPU(ctx, c, r)
	if nameErr := c.namePod(); nameErr != nil && err == nil {
		log.G(ctx).WithError(nameErr).WithField(logfields.ID, c.id).Warn("the pod may have the hostname of the one that was saved")
	}
	if err != nil {
		return nil, err
	}
	c.setPID(int(resp.Pid))
	c.guardRestored(ctx)
	if err := s.finish(ctx, c); err != nil {
		// What runs by now runs without its GPU state, or under another's name.
		return nil, errors.Join(err, s.kill(ctx, c))
	}
	return resp, nil
}

// finish does what is left once CRIU is done. A container without GPU state may
// have come to its end by then.
func (s *service) finish(ctx context.Context, c *container) error {
	if err := c.restore.Verified(ctx); err != nil {
		return err
	}
	running, err := c.running()
	if err != nil && !c.restore.HasGPU() {
		return nil
	}
	if err != nil {
		return err
	}
	if c.restore.HasGPU() {
		if err := rewriteDevices(running.Init, c.devices, c.restore.Manifest().Devices, c.gpus.NVIDIAMinors); err != nil {
			return err
		}
	}
	// Last: device memory that was kept is used up by it.
	if err := c.nameHost(running.Init); err != nil {
		return err
	}
	return c.restore.Finish(ctx, running)
}

// startCPU makes the stock service restore the CPU side, for as long as the
// images prove to be whole.
func (s *service) startCPU(ctx context.Context, c *container, r *taskapi.StartRequest) (*taskapi.StartResponse, error) {
	rctx, cancel := context.WithTimeoutCause(ctx, c.timeout, fmt.Errorf("not done within %s", c.timeout))
	defer cancel()
	rctx, cancelImages := c.restore.Context(rctx)
	defer cancelImages()
	// runc knows nothing of a restore that does not get far: its processes and
	// its cgroup are ours to remove, if the cgroup was not there before.
	groups, err := cgroup.Fresh(c.saved.CgroupsPath)
	if err != nil {
		return nil, err
	}
	// runc looks CRIU up in PATH.
	rctx = gorunc.WithExtraEnv(rctx, "PATH="+c.runc.Path())
	resp, err := s.TTRPCTaskService.Start(rctx, r)
	if err == nil {
		return resp, nil
	}
	if cause := context.Cause(rctx); cause != nil {
		err = errors.Join(cause, err)
	}
	ctx = context.WithoutCancel(ctx)
	err = c.runc.ExplainRestore(ctx, err, c.criuWork)
	// A runc that was killed leaves its state, and processes perhaps.
	cleanup, end := context.WithTimeoutCause(ctx, killGrace, fmt.Errorf("not done within %s", killGrace))
	defer end()
	// The processes first: runc would wait for the first of them to end, which
	// one that CRIU left half restored may not do by itself.
	return nil, errors.Join(err, groups.Remove(cleanup), c.unmountCRIU(), c.runc.Delete(cleanup))
}

// unmountCRIU removes the mounts that a CRIU which was killed leaves on the
// host: its view of the cgroups (criu/cgroup.c, .criu.cgyard), in its work
// directory, and the root that runc makes for it (criu_linux.go).
func (c *container) unmountCRIU() error {
	var errs []error
	for _, dir := range []string{c.criuWork, filepath.Join(c.runc.Root, c.id, "criu-root")} {
		dir, err := filepath.EvalSymlinks(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = mount.UnmountRecursive(dir, unix.MNT_DETACH)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("remove what CRIU mounted in %s: %w", dir, err))
		}
	}
	return errors.Join(errs...)
}

// kill ends a container whose restore failed after its processes were there, and
// returns when they have ended, which takes a GPU's a while: a client that deletes
// the task at once would be told that it runs.
func (s *service) kill(ctx context.Context, c *container) error {
	running, err := c.running()
	if err != nil {
		return nil //nolint:nilerr // it has ended
	}
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), killGrace, fmt.Errorf("not done within %s", killGrace))
	defer cancel()
	err = running.Cgroup.Kill(ctx)
	if err == nil {
		_, err = s.Wait(ctx, &taskapi.WaitRequest{ID: c.id})
	}
	if err != nil {
		return fmt.Errorf("end the container whose restore failed: %w", err)
	}
	return nil
}

// temporaryName is what os.MkdirTemp makes of containerd's "ctrd-checkpoint".
var temporaryName = lazyregexp.New(`^ctrd-checkpoint[0-9]+$`)

// temporaryParent is where containerd, whose environment the shim has, makes
// its temporary directories.
func temporaryParent() string {
	return filepath.Clean(cmp.Or(os.Getenv("XDG_RUNTIME_DIR"), os.TempDir()))
}

// removeTemporary removes the directory into which containerd unpacked the
// checkpoint, which it forgets (containerd issue 10166,
// plugins/services/tasks/local.go), whether the restore worked or not: it has all
// memory of the container's programs. A shim that is killed leaves it. A directory
// of the user's stays.
func removeTemporary(ctx context.Context, dir string) {
	if !temporaryName.MatchString(filepath.Base(dir)) || filepath.Dir(dir) != temporaryParent() {
		return
	}
	if err := os.RemoveAll(dir); err != nil {
		log.G(ctx).WithError(err).WithField(logfields.Path, dir).Warn("containerd's copy of the checkpoint could not be removed")
	}
}

var _ checkpoint.Runtime = (*runc.Container)(nil)
