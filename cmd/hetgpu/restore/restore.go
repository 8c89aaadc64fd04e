// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Package restore is `hetgpu restore`: it makes a container anew from what
// `hetgpu checkpoint` saved, all of it or nothing.
package restore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/errdefs"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/hetgpu/containerd-shim-hetgpu/cmd/hetgpu/layout"
	"github.com/hetgpu/containerd-shim-hetgpu/cmd/hetgpu/record"
	"github.com/hetgpu/containerd-shim-hetgpu/oci"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/snapshot"
)

const (
	// undoTimeout bounds the removal of what a failed restore made.
	undoTimeout = time.Minute
	// leaseTime is when containerd may remove what a restore that was killed
	// left in its store.
	leaseTime = 24 * time.Hour
)

// Options is what the command line says.
type Options struct {
	// Source is a snapshot's directory, or an OCI layout.
	Source string
	// ID is the new container's; that of the saved one if empty.
	ID                 string
	Address, Namespace string
	IO                 IO
}

// Report is the result, as --json prints it (docs/formats.md).
type Report struct {
	Container string `json:"container"`
	Namespace string `json:"namespace"`
	// Saved is the id of the container that was saved.
	Saved   string  `json:"saved"`
	PID     uint32  `json:"pid"`
	Engine  string  `json:"engine"`
	Seconds float64 `json:"seconds"`
	// Status is its exit status, if it was attached to.
	Status *uint32 `json:"status,omitempty"`
}

// Print writes the report for people.
func (r *Report) Print(w io.Writer) error {
	_, err := fmt.Fprintf(w, "%s: restored from %s in %.1f s, process %d, engine %s\n", r.Container, r.Saved, r.Seconds, r.PID, r.Engine)
	return err
}

// restoring is one restore under way.
type restoring struct {
	Options
	client *containerd.Client
	snap   *snapshot.Snapshot
	saved  *record.Container
	// undo is what removes what was made, last first.
	undo []func(context.Context) error
}

// Run restores a container. On error nothing of it is left.
func Run(ctx context.Context, client *containerd.Client, opts Options) (_ *Report, err error) {
	start := time.Now()
	r := &restoring{Options: opts, client: client}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.rollback(ctx))
		}
	}()
	dir, remove, err := unpacked(ctx, opts.Source)
	if err != nil {
		return nil, err
	}
	defer remove()
	if r.snap, err = snapshot.Open(dir); err != nil {
		return nil, err
	}
	if r.saved, err = record.Read(ctx, r.snap); err != nil {
		return nil, err
	}
	if r.ID == "" {
		r.ID = r.saved.ID
	}
	task, err := r.restore(ctx, dir)
	if err != nil {
		return nil, fmt.Errorf("restore %s from %s: %w", r.ID, opts.Source, err)
	}
	report := &Report{
		Container: r.ID, Namespace: r.Namespace, Saved: r.saved.ID, PID: task.Pid(), Engine: r.snap.Manifest.Engine,
		Seconds: time.Since(start).Seconds(),
	}
	r.undo = nil
	if r.IO.Attach {
		status, err := r.IO.attach(ctx, task)
		report.Status = &status
		return report, err
	}
	return report, nil
}

// unpacked returns the directory of a snapshot: the source itself, or one that
// is removed by the function.
func unpacked(ctx context.Context, source string) (dir string, remove func(), err error) {
	if source, err = filepath.Abs(source); err != nil {
		return "", nil, err
	}
	if !layout.Is(source) {
		return source, func() {}, nil
	}
	if dir, err = os.MkdirTemp("", "hetgpu-restore-"); err != nil {
		return "", nil, err
	}
	remove = func() { _ = os.RemoveAll(dir) } // it is in the way of nobody
	if err := layout.Unpack(ctx, source, dir); err != nil {
		remove()
		return "", nil, err
	}
	return dir, remove, nil
}

// restore makes the container and its task.
func (r *restoring) restore(ctx context.Context, dir string) (containerd.Task, error) {
	ctx, done, err := r.client.WithLease(ctx, leases.WithRandomID(), leases.WithExpiration(leaseTime))
	if err != nil {
		return nil, err
	}
	defer func() { _ = done(context.WithoutCancel(ctx)) }() // it expires
	image, err := r.image(ctx)
	if err != nil {
		return nil, err
	}
	container, err := r.container(ctx, image)
	if err != nil {
		return nil, err
	}
	if err := r.layer(ctx); err != nil {
		return nil, fmt.Errorf("the writable layer: %w", err)
	}
	spec, err := container.Spec(ctx)
	if err != nil {
		return nil, err
	}
	creator, err := r.IO.creator(ctx, spec.Process != nil && spec.Process.Terminal)
	if err != nil {
		return nil, err
	}
	return r.task(ctx, container, creator, dir)
}

func (r *restoring) task(ctx context.Context, container containerd.Container, creator cio.Creator, dir string) (containerd.Task, error) {
	task, err := container.NewTask(ctx, creator, containerd.WithRestoreImagePath(dir))
	if err != nil {
		return nil, err
	}
	r.undo = append(r.undo, func(ctx context.Context) error {
		_, err := task.Delete(ctx, containerd.WithProcessKill)
		if errdefs.IsNotFound(err) {
			return nil
		}
		return err
	})
	if err := r.IO.prepare(ctx, task); err != nil {
		return nil, err
	}
	return task, task.Start(ctx)
}

// image finds the image of which the saved container was made: by its name or,
// if that is another's by now, by its digest.
func (r *restoring) image(ctx context.Context) (containerd.Image, error) {
	saved := r.saved.Image
	if saved == nil {
		return nil, fmt.Errorf("container %s was made without an image, and its root can't be made again", r.saved.ID)
	}
	found, err := r.client.GetImage(ctx, saved.Name)
	if err == nil && found.Target().Digest == saved.Target.Digest {
		return found, nil
	}
	if err != nil && !errdefs.IsNotFound(err) {
		return nil, err
	}
	same, err := r.client.ListImages(ctx, fmt.Sprintf("target.digest==%s", saved.Target.Digest))
	if err != nil {
		return nil, err
	}
	if len(same) > 0 {
		return same[0], nil
	}
	// A name may have a digest already, and a tag would be ignored beside it.
	return nil, fmt.Errorf("image %s (%s) is not in containerd's namespace %s: pull it first, ctr --namespace %s images pull %s, and that very digest",
		saved.Name, saved.Target.Digest, r.Namespace, r.Namespace, saved.Name)
}

// container makes the container, with a root of its own.
func (r *restoring) container(ctx context.Context, image containerd.Image) (containerd.Container, error) {
	parent, err := r.parent(ctx, image)
	if err != nil {
		return nil, err
	}
	if _, err := r.client.LoadContainer(ctx, r.ID); err == nil {
		return nil, fmt.Errorf("there is a container %s in containerd's namespace %s: name another by --id, or remove it: %w", r.ID, r.Namespace, errdefs.ErrAlreadyExists)
	}
	snapshotter := r.client.SnapshotService(r.saved.Snapshotter)
	if _, err := snapshotter.Prepare(ctx, r.ID, parent, snapshots.WithLabels(r.saved.SnapshotLabels)); err != nil {
		return nil, fmt.Errorf("the root file system: %w", err)
	}
	r.undo = append(r.undo, func(ctx context.Context) error { return snapshotter.Remove(ctx, r.ID) })
	spec, err := r.spec()
	if err != nil {
		return nil, err
	}
	container, err := r.client.NewContainer(ctx, r.ID, func(_ context.Context, _ *containerd.Client, c *containers.Container) error {
		c.Image, c.Labels, c.Spec = image.Name(), r.saved.Labels, spec
		c.Snapshotter, c.SnapshotKey = r.saved.Snapshotter, r.ID
		c.Runtime.Name = r.saved.Runtime.Name
		if opts := r.saved.Runtime.Options; opts != nil {
			c.Runtime.Options = opts.Proto()
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	r.undo = append(r.undo, func(ctx context.Context) error { return container.Delete(ctx) })
	return container, nil
}

// parent is the snapshot below the container's own.
func (r *restoring) parent(ctx context.Context, image containerd.Image) (string, error) {
	if r.saved.Parent != "" {
		if _, err := r.client.SnapshotService(r.saved.Snapshotter).Stat(ctx, r.saved.Parent); err == nil {
			return r.saved.Parent, nil
		}
	}
	if err := image.Unpack(ctx, r.saved.Snapshotter); err != nil {
		return "", fmt.Errorf("unpack %s: %w", image.Name(), err)
	}
	if _, err := r.client.SnapshotService(r.saved.Snapshotter).Stat(ctx, r.saved.Parent); err != nil {
		return "", fmt.Errorf("the root of the saved container was made from the snapshot %s, which image %s does not give: %w", r.saved.Parent, image.Name(), err)
	}
	return r.saved.Parent, nil
}

// spec is the saved one, with the new name. The shim renames what is left.
func (r *restoring) spec() (_ *anypb.Any, err error) {
	saved := r.saved.Spec.Proto()
	bundle, err := os.MkdirTemp("", "hetgpu-spec-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(bundle)) }()
	name := filepath.Join(bundle, "config.json")
	if err := os.WriteFile(name, saved.GetValue(), 0o600); err != nil {
		return nil, err
	}
	spec, err := oci.Load(bundle)
	if err != nil {
		return nil, err
	}
	oci.Rename(spec, r.Namespace, r.saved.ID, r.ID)
	if err := spec.Save(); err != nil {
		return nil, err
	}
	saved.Value, err = os.ReadFile(name)
	return saved, err
}

// layer applies the writable layer, if there is one.
func (r *restoring) layer(ctx context.Context) (err error) {
	isLayer := func(f snapshot.File) bool { return f.Name == snapshot.LayerName }
	size := int64(-1)
	for _, f := range r.snap.Manifest.Files {
		if isLayer(f) {
			size = f.Size
		}
	}
	if size < 0 {
		return nil
	}
	if err := r.snap.Verify(ctx, isLayer); err != nil {
		return err
	}
	f, err := os.Open(filepath.Join(r.snap.Dir, snapshot.LayerName))
	if err != nil {
		return err
	}
	defer f.Close()
	// containerd applies what is in its store. The lease keeps it there.
	store := r.client.ContentStore()
	w, err := content.OpenWriter(ctx, store, content.WithRef("hetgpu-restore-"+r.ID))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	if err := w.Truncate(0); err != nil {
		return err
	}
	if err := content.Copy(ctx, w, f, size, ""); err != nil && !errdefs.IsAlreadyExists(err) {
		return err
	}
	desc := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageLayer, Digest: w.Digest(), Size: size}
	mounts, err := r.client.SnapshotService(r.saved.Snapshotter).Mounts(ctx, r.ID)
	if err != nil {
		return err
	}
	_, err = r.client.DiffService().Apply(ctx, desc, mounts)
	return err
}

// rollback removes what was made, whether or not ctx has ended.
func (r *restoring) rollback(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	var errs []error
	for _, undo := range slices.Backward(r.undo) {
		if err := undo(ctx); err != nil && !errdefs.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("remove what was made: %w", err))
		}
	}
	return errors.Join(errs...)
}

// signals are passed on to a container that is attached to.
var signals = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2}
