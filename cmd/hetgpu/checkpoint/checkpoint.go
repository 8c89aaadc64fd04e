// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Package checkpoint is `hetgpu checkpoint`: it has a container saved by its
// shim, which stops it only while its state is captured, where containerd's own
// client keeps it paused until the snapshot is packed.
package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"

	"github.com/hetgpu/containerd-shim-hetgpu/cmd/hetgpu/record"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/snapshot"
	"github.com/hetgpu/containerd-shim-hetgpu/shim/shortstop"
)

// runtimeName is the runtime whose shim understands what we ask for.
const runtimeName = "io.hetgpu.v2"

// Options is what the command line says.
type Options struct {
	ID, Address, Namespace string
	// Dir is the directory of the snapshot, or Layout that of an OCI layout.
	Dir, Layout string
	// Name is the name of the checkpoint in the layout.
	Name string
	// Parent is the directory of an earlier snapshot of the container, in which
	// what has not changed is left.
	Parent string
	// NoRW leaves the writable layer out.
	NoRW     bool
	Shim     shortstop.Options
	Progress Progress
}

// Report is the result, as --json prints it (docs/formats.md).
type Report struct {
	Container string `json:"container"`
	Namespace string `json:"namespace"`
	Directory string `json:"directory,omitempty"`
	// Layout is the OCI layout, Name and Digest are the checkpoint's in it.
	Layout string `json:"layout,omitempty"`
	Name   string `json:"name,omitempty"`
	Digest string `json:"digest,omitempty"`

	Engine       string `json:"engine"`
	EngineReason string `json:"engine_reason,omitempty"`
	// StopSeconds is how long the container stood still; missing if it ended, or
	// was paused before.
	StopSeconds float64 `json:"stop_seconds,omitempty"`
	// Seconds is all of it.
	Seconds float64          `json:"seconds"`
	Phases  []snapshot.Phase `json:"phases"`
	// Files and Bytes are the snapshot's; LayerBytes are in its writable layer.
	Files      int   `json:"files"`
	Bytes      int64 `json:"bytes"`
	LayerBytes int64 `json:"layer_bytes,omitempty"`
	// ReusedBytes of device memory are in the snapshots before.
	ReusedBytes uint64 `json:"reused_bytes,omitempty"`
	// KeptBytes are of device memory that stays on its devices.
	KeptBytes uint64 `json:"kept_bytes,omitempty"`
}

// Run makes a checkpoint. On error the container goes on as it was found, and
// nothing is left of what was written.
func Run(ctx context.Context, client *containerd.Client, opts Options) (_ *Report, err error) {
	start := time.Now()
	info, task, err := find(ctx, client, opts.ID)
	if err != nil {
		return nil, err
	}
	kept, err := record.Of(ctx, client, info)
	if err != nil {
		return nil, err
	}
	if opts.Shim.Container, err = kept.Encode(); err != nil {
		return nil, err
	}
	opts.Shim.Layer = !opts.NoRW
	service, closer, err := dialShim("/proc", opts.ID, task.Pid())
	if err != nil {
		return nil, err
	}
	defer closer.Close()
	dir := opts.Dir
	if opts.Layout != "" {
		whole, failed := newDirectory(opts.Layout)
		if failed != nil {
			return nil, failed
		}
		defer func() { whole.end(err) }()
		dir = filepath.Join(opts.Layout, unpackedName)
	}
	made, err := newDirectory(dir)
	if err != nil {
		return nil, err
	}
	defer func() { made.end(err) }()
	if err := opts.setParent(made.dir); err != nil {
		return nil, err
	}
	if err := save(ctx, service, made.dir, opts); err != nil {
		return nil, err
	}
	m, err := snapshot.ReadManifest(made.dir)
	if err != nil {
		return nil, err
	}
	if opts.Parent != "" && !m.Options.Incremental {
		return nil, fmt.Errorf("the shim of %s is of an older version: it can't leave anything in %s", opts.ID, opts.Parent)
	}
	r := report(m, opts)
	if opts.Layout != "" {
		if r.Name, r.Digest, err = pack(ctx, client, made.dir, kept, opts); err != nil {
			return nil, fmt.Errorf("the container was saved, but not packed: %w", err)
		}
		if err := os.RemoveAll(made.dir); err != nil {
			return nil, err
		}
	}
	r.Seconds = time.Since(start).Seconds()
	return r, nil
}

// setParent says where the snapshot before is, as seen from the new one's
// directory: the two can be moved together.
func (o *Options) setParent(dir string) error {
	if o.Parent == "" {
		return nil
	}
	parent, err := filepath.EvalSymlinks(o.Parent)
	if err == nil {
		parent, err = filepath.Abs(parent)
	}
	if err != nil {
		return fmt.Errorf("the snapshot before (--parent): %w", err)
	}
	o.Shim.Parent, err = filepath.Rel(dir, parent)
	return err
}

// find returns a container that our shim runs, and its task.
func find(ctx context.Context, client *containerd.Client, id string) (containers.Container, containerd.Task, error) {
	c, err := client.LoadContainer(ctx, id)
	if err != nil {
		return containers.Container{}, nil, err
	}
	info, err := c.Info(ctx, containerd.WithoutRefreshedMetadata)
	if err != nil {
		return info, nil, err
	}
	if name := info.Runtime.Name; name != runtimeName && filepath.Base(name) != "containerd-shim-hetgpu-v2" {
		return info, nil, fmt.Errorf("container %s has the runtime %s, and only %s can save it with a short stop: use ctr container checkpoint, or run it with --runtime %s", id, name, runtimeName, runtimeName)
	}
	task, err := c.Task(ctx, nil)
	if errdefs.IsNotFound(err) {
		return info, nil, fmt.Errorf("container %s has no task: it is not running", id)
	}
	if err != nil {
		return info, nil, err
	}
	st, err := task.Status(ctx)
	if err == nil && st.Status != containerd.Running && st.Status != containerd.Paused {
		err = fmt.Errorf("container %s is %s", id, st.Status)
	}
	return info, task, err
}

// save has the shim fill the directory. A context that ends makes the shim give
// it up; save returns when it has.
func save(ctx context.Context, service taskapi.TTRPCTaskService, dir string, opts Options) error {
	packed, err := opts.Shim.Pack()
	if err != nil {
		return err
	}
	name := filepath.Join(dir, shortstop.ProgressName)
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_RDONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	abandon := context.AfterFunc(ctx, func() { _ = os.Remove(name) }) // the shim may be done, and have removed it
	defer abandon()
	watch := watchProgress(dir, f, opts.Progress)
	_, err = service.Checkpoint(context.WithoutCancel(ctx), &taskapi.CheckpointTaskRequest{ID: opts.ID, Path: dir, Options: packed})
	watch.end()
	_ = os.Remove(name) // the shim did, unless it is of an older version or was killed
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("given up, and %s goes on: %w", opts.ID, context.Cause(ctx))
	}
	if errors.Is(err, io.EOF) || err != nil && strings.Contains(err.Error(), "ttrpc: closed") {
		return fmt.Errorf("the shim of %s has ended: %w", opts.ID, err)
	}
	return errgrpc.ToNative(err)
}

func report(m *snapshot.Manifest, opts Options) *Report {
	r := &Report{
		Container: opts.ID, Namespace: opts.Namespace, Directory: opts.Dir, Layout: opts.Layout,
		Engine: m.Engine, EngineReason: m.EngineReason, StopSeconds: m.StopSeconds, Phases: m.Phases, Files: len(m.Files),
	}
	if m.Memory != nil {
		r.ReusedBytes, r.KeptBytes = m.Memory.ReusedBytes, m.Memory.KeptBytes
	}
	for _, f := range m.Files {
		r.Bytes += f.Size
		if f.Name == snapshot.LayerName {
			r.LayerBytes = f.Size
		}
	}
	return r
}

// directory is one that is filled here, or left as it was.
type directory struct {
	dir    string
	before *snapshot.Listing
}

// newDirectory makes a directory, if it is missing.
func newDirectory(dir string) (*directory, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	before, err := snapshot.List(dir)
	if err != nil {
		return nil, err
	}
	if !before.Empty() {
		return nil, fmt.Errorf("%s is not empty: name a directory that is, or a new one", dir)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	// What is relative to it is so to where it is.
	dir, err = filepath.EvalSymlinks(dir)
	return &directory{dir, before}, err
}

// end removes what was made, if it is not wanted.
func (d *directory) end(err error) {
	if err != nil {
		_ = snapshot.Remove(d.before) // the error is the one that matters
	}
}

// Print writes the report for people.
func (r *Report) Print(w io.Writer) error {
	where := r.Directory
	if r.Layout != "" {
		where = r.Layout + " (" + r.Name + ")"
	}
	_, err := fmt.Fprintf(w, "%s: %d files, %s in %s\n", r.Container, r.Files, size(r.Bytes), where)
	if err == nil && r.ReusedBytes > 0 {
		_, err = fmt.Fprintf(w, "%s of device memory left in the snapshots before: keep them\n", size(int64(r.ReusedBytes)))
	}
	if err == nil && r.StopSeconds > 0 {
		_, err = fmt.Fprintf(w, "stopped for %.3f s of %.1f s, engine %s\n", r.StopSeconds, r.Seconds, r.Engine)
	} else if err == nil {
		_, err = fmt.Fprintf(w, "%.1f s, engine %s\n", r.Seconds, r.Engine)
	}
	if err == nil && r.KeptBytes > 0 {
		_, err = fmt.Fprintf(w, "%s stay on the GPUs until it is restored, or by hetgpu drain or hetgpu drop\n", size(int64(r.KeptBytes)))
	}
	if err == nil && r.EngineReason != "" {
		_, err = fmt.Fprintf(w, "%s\n", r.EngineReason)
	}
	return err
}
