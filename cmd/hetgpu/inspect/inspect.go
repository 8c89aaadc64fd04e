// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Package inspect reads a snapshot wherever it is (a directory, a tar, a
// checkpoint image of containerd), verifies it and tells what is in it. It
// writes nothing and unpacks nothing; a snapshot is hostile input to it.
package inspect

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/keeper"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/memfile"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/snapshot"
)

// Options say where and how to look.
type Options struct {
	// Address and Namespace are containerd's, for images.
	Address, Namespace string
	// NoVerify leaves the digests out. Names and sizes are compared even so.
	NoVerify bool
	// Keeper asks who keeps the device memory of a snapshot; nil where that can't
	// be told.
	Keeper func(context.Context, *snapshot.Keeper) (keeper.Status, error)
	// Key reads the host's key of that name; nil where there is none.
	Key func(id string) (*memfile.Key, error)
}

// The kinds of a source.
const (
	KindDirectory = "directory"
	KindTar       = "tar"
	KindImage     = "image"
)

// The values of [Report.Digests].
const (
	// DigestsMatch: every file was read and is as the manifest says.
	DigestsMatch = "ok"
	// DigestsPartly: of a tar that is packed, all but the device memory. What is in
	// that is found by its index, which comes after it.
	DigestsPartly = "partly"
	// DigestsDiffer: see Problems.
	DigestsDiffer = "failed"
	// DigestsNotRead: the caller wanted none.
	DigestsNotRead = "not verified"
	// DigestsAbsent: there is no manifest, so there are none.
	DigestsAbsent = "none"
)

// Report is what was found.
type Report struct {
	Source Source `json:"source"`
	// Manifest is null in a snapshot of the stock shim, and where it can't be
	// read.
	Manifest *snapshot.Manifest `json:"manifest"`
	// Processes are those that CRIU saved, parents before their children; null
	// if they can't be read.
	Processes []Process `json:"processes"`
	// Keeper is who keeps the device memory just now; missing if it is in files, or
	// gone.
	Keeper *keeper.Status `json:"keeper,omitempty"`
	// Encryption is that of the device memory in files; missing if there is none.
	Encryption *Encryption `json:"encryption,omitempty"`
	Content    Content     `json:"content"`
	Digests    string      `json:"digests"`
	// Problems are the reasons not to restore the snapshot; an empty list if
	// there is none.
	Problems []string `json:"problems"`
}

// Encryption says with which key device memory is encrypted.
type Encryption struct {
	KeyID string `json:"key_id"`
	// Here says that the key is this host's. Without it digests show damage only.
	Here bool `json:"here"`
	// Reason is why it is not.
	Reason string `json:"reason,omitempty"`
}

// Source is where the snapshot is.
type Source struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
	// Digest is the digest of the checkpoint in an image.
	Digest string `json:"digest,omitempty"`
}

// Content is what was counted.
type Content struct {
	// Files and Bytes are those that a restore reads.
	Files int   `json:"files"`
	Bytes int64 `json:"bytes"`
	// Others are the names of what lies beside the snapshot's files.
	Others []string `json:"others"`
}

// ErrProblems means that the report has problems.
var ErrProblems = errors.New("the snapshot must not be restored")

// ErrNoSnapshot means that there is no snapshot in what was named.
var ErrNoSnapshot = errors.New("no snapshot found")

// Inspect reads the snapshot of that name: a path, or else a reference of a
// containerd image. Where it returns a report beside an error, the error is
// [ErrProblems].
func Inspect(ctx context.Context, name string, opts Options) (*Report, error) {
	report, err := find(ctx, name, opts)
	if err != nil {
		return nil, err
	}
	report.askKeeper(ctx, opts)
	if len(report.Problems) > 0 {
		return report, ErrProblems
	}
	return report, nil
}

// askKeeper finds out whether the device memory is there that is in no file.
func (r *Report) askKeeper(ctx context.Context, opts Options) {
	if r.Manifest == nil || r.Manifest.Kept() == nil || opts.Keeper == nil {
		return
	}
	status, err := opts.Keeper(ctx, r.Manifest.Kept())
	if err != nil {
		r.problem(fmt.Errorf("device memory: %w", err))
		return
	}
	r.Keeper = &status
}

func find(ctx context.Context, name string, opts Options) (*Report, error) {
	info, err := os.Stat(name)
	switch {
	case err == nil && info.IsDir():
		return directory(ctx, name, opts)
	case err == nil && info.Mode().IsRegular():
		return tarFile(ctx, name, opts)
	case err == nil:
		return nil, fmt.Errorf("%s is neither a directory nor a file", name)
	case !errors.Is(err, os.ErrNotExist) || strings.HasPrefix(name, "/") || strings.HasPrefix(name, "."):
		return nil, err
	}
	return image(ctx, name, opts)
}

// setManifest notes the manifest, and looks for the key of what is encrypted.
func (r *Report) setManifest(m *snapshot.Manifest, opts Options) (key *memfile.Key) {
	r.Manifest = m
	id := m.KeyID()
	if id == "" {
		return nil
	}
	err := memfile.ErrKey
	if opts.Key != nil {
		key, err = opts.Key(id)
	}
	r.Encryption = &Encryption{KeyID: id, Here: err == nil}
	if err != nil {
		r.Encryption.Reason = err.Error()
		return nil
	}
	return key
}

// newReport makes a report that has no problem so far.
func newReport(kind, name string) *Report {
	return &Report{
		Source: Source{Kind: kind, Name: name}, Digests: DigestsAbsent,
		Content: Content{Others: []string{}}, Problems: []string{},
	}
}

// problem notes a reason not to restore; errors that were joined are several.
func (r *Report) problem(err error) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok && strings.Contains(err.Error(), "\n") {
		for _, e := range joined.Unwrap() {
			r.problem(e)
		}
		return
	}
	r.Problems = append(r.Problems, err.Error())
}

// count notes a file of the snapshot.
func (c *Content) count(size int64) {
	c.Files++
	c.Bytes += size
}

// setProcesses notes what CRIU saved, after everything else: what can't be
// read of it is a problem of its own only where no file is known to be damaged.
func (r *Report) setProcesses(s *saved) {
	var err error
	if r.Processes, err = s.processes(); err == nil {
		err = markGPU(r.Processes, r.Manifest)
	}
	if err != nil && len(r.Problems) == 0 {
		r.problem(err)
	}
}
