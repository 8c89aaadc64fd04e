// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Package layout packs a snapshot as an OCI layout, as containerd's client packs
// a checkpoint, and unpacks it again.
package layout

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"

	"github.com/containerd/containerd/api/types/runc/options"
	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/pkg/archive"
	"github.com/containerd/containerd/v2/plugins/content/local"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	"github.com/containerd/typeurl/v2"
	"github.com/klauspost/compress/gzip"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"google.golang.org/protobuf/proto"

	"github.com/hetgpu/containerd-shim-hetgpu/cmd/hetgpu/record"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/snapshot"
)

// The annotations of containerd's (client/container.go).
const (
	runtimeAnnotation     = "io.containerd.checkpoint.runtime"
	snapshotterAnnotation = "io.containerd.checkpoint.snapshotter"
)

// maxIndex is the largest index that is read.
const maxIndex = 4 << 20

// Checkpoint is what is packed.
type Checkpoint struct {
	// Name is what an import calls it.
	Name string
	// Snapshot is the directory of the snapshot.
	Snapshot             string
	Container            *record.Container
	Exit, TCPEstablished bool
	// NoRW says that there is no writable layer.
	NoRW bool
}

// writer adds blobs to a layout.
type writer struct {
	store    content.Store
	index    ocispec.Index
	platform ocispec.Platform
}

// Write makes a layout in a directory, with all that the provider has of the
// container's image for this platform.
func Write(ctx context.Context, dir string, c Checkpoint, provider content.Provider) (desc ocispec.Descriptor, err error) {
	store, err := local.NewStore(dir)
	if err != nil {
		return desc, err
	}
	w := &writer{store: store, platform: ocispec.Platform{OS: runtime.GOOS, Architecture: runtime.GOARCH}}
	w.index = ocispec.Index{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex,
		Annotations: map[string]string{runtimeAnnotation: c.Container.Runtime.Name, snapshotterAnnotation: c.Container.Snapshotter},
	}
	for _, step := range []func() error{
		func() error { return w.runtime(ctx, c.Container) },
		func() error { return w.image(ctx, c.Container, provider) },
		func() error { return w.task(ctx, c) },
		func() error { return w.layer(ctx, c) },
	} {
		if err := step(); err != nil {
			return desc, err
		}
	}
	return w.finish(ctx, dir, c.Name)
}

// add adds a blob that fill writes.
func (w *writer) add(ctx context.Context, mediaType string, fill func(io.Writer) error) error {
	desc, err := w.blob(ctx, mediaType, fill)
	if err == nil {
		desc.Platform = &w.platform
		w.index.Manifests = append(w.index.Manifests, desc)
	}
	return err
}

func (w *writer) blob(ctx context.Context, mediaType string, fill func(io.Writer) error) (desc ocispec.Descriptor, err error) {
	out, err := content.OpenWriter(ctx, w.store, content.WithRef(mediaType))
	if err != nil {
		return desc, err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	count := &counter{w: out, ctx: ctx}
	if err := fill(count); err != nil {
		return desc, err
	}
	if err := out.Commit(ctx, count.n, ""); err != nil && !errdefs.IsAlreadyExists(err) {
		return desc, err
	}
	return ocispec.Descriptor{MediaType: mediaType, Digest: out.Digest(), Size: count.n}, nil
}

// counter counts, and ends with its context.
type counter struct {
	w   io.Writer
	ctx context.Context
	n   int64
}

func (c *counter) Write(p []byte) (int, error) {
	if c.ctx.Err() != nil {
		return 0, context.Cause(c.ctx)
	}
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

func (w *writer) message(ctx context.Context, mediaType string, m proto.Message) error {
	data, err := proto.Marshal(m)
	if err != nil {
		return err
	}
	return w.add(ctx, mediaType, func(to io.Writer) error { _, err := to.Write(data); return err })
}

func (w *writer) runtime(ctx context.Context, c *record.Container) error {
	if c.Runtime.Options == nil {
		return nil
	}
	return w.message(ctx, images.MediaTypeContainerd1CheckpointRuntimeOptions, c.Runtime.Options.Proto())
}

// image adds the container's image: its manifest for this platform, since the
// others of its index may not be here.
func (w *writer) image(ctx context.Context, c *record.Container, provider content.Provider) error {
	if c.Image == nil {
		return nil
	}
	w.index.Annotations[ocispec.AnnotationRefName] = c.Image.Name
	desc, err := manifestOf(ctx, provider, c.Image.Target)
	if err != nil {
		return fmt.Errorf("image %s: %w", c.Image.Name, err)
	}
	copyAll := images.HandlerFunc(func(ctx context.Context, d ocispec.Descriptor) ([]ocispec.Descriptor, error) {
		return nil, w.copy(ctx, d, provider)
	})
	if err := images.Walk(ctx, images.Handlers(copyAll, images.ChildrenHandler(provider)), desc); err != nil {
		return fmt.Errorf("image %s: %w", c.Image.Name, err)
	}
	if desc.Platform == nil {
		desc.Platform = &w.platform
	}
	w.index.Manifests = append(w.index.Manifests, desc)
	return nil
}

func manifestOf(ctx context.Context, provider content.Provider, target ocispec.Descriptor) (ocispec.Descriptor, error) {
	if !images.IsIndexType(target.MediaType) {
		return target, nil
	}
	children, err := images.Children(ctx, provider, target)
	if err != nil {
		return target, err
	}
	match := platforms.Default()
	for _, d := range children {
		if images.IsManifestType(d.MediaType) && d.Platform != nil && match.Match(*d.Platform) {
			return d, nil
		}
	}
	return target, fmt.Errorf("no manifest for %s: %w", platforms.DefaultString(), errdefs.ErrNotFound)
}

// copy copies one blob.
func (w *writer) copy(ctx context.Context, d ocispec.Descriptor, from content.Provider) error {
	r, err := from.ReaderAt(ctx, d)
	if errdefs.IsNotFound(err) && images.IsLayerType(d.MediaType) {
		return fmt.Errorf("layer %s is not in containerd's store (it was unpacked and let go, or came from a lazy snapshotter); pull the image again, with all of its layers: %w", d.Digest, err)
	}
	if err != nil {
		return err
	}
	defer r.Close()
	err = content.WriteBlob(ctx, w.store, "copy-"+d.Digest.Encoded(), io.NewSectionReader(r, 0, r.Size()), d)
	if errdefs.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// task adds what containerd's task service makes, and the options.
func (w *writer) task(ctx context.Context, c Checkpoint) error {
	err := w.add(ctx, images.MediaTypeContainerd1Checkpoint, func(to io.Writer) error { return archive.WriteDiff(ctx, to, "", c.Snapshot) })
	if err != nil {
		return err
	}
	if err := w.message(ctx, images.MediaTypeContainerd1CheckpointConfig, c.Container.Spec.Proto()); err != nil {
		return err
	}
	opts, err := typeurl.MarshalAnyToProto(&options.CheckpointOptions{Exit: c.Exit, OpenTcp: c.TCPEstablished})
	if err != nil {
		return err
	}
	return w.message(ctx, images.MediaTypeContainerd1CheckpointOptions, opts)
}

// layer adds the writable layer, packed as containerd's client wants it.
func (w *writer) layer(ctx context.Context, c Checkpoint) error {
	if c.NoRW {
		return nil
	}
	f, err := os.Open(filepath.Join(c.Snapshot, snapshot.LayerName))
	if err != nil {
		return err
	}
	defer f.Close()
	return w.add(ctx, ocispec.MediaTypeImageLayerGzip, func(to io.Writer) error {
		// It is written once and read once.
		packed, err := gzip.NewWriterLevel(to, gzip.BestSpeed)
		if err != nil {
			return err
		}
		_, err = io.Copy(packed, f)
		return errors.Join(err, packed.Close())
	})
}

// finish writes what makes the directory a layout.
func (w *writer) finish(ctx context.Context, dir, name string) (ocispec.Descriptor, error) {
	data, err := json.Marshal(w.index)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	desc := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageIndex, Digest: digest.FromBytes(data), Size: int64(len(data))}
	if err := content.WriteBlob(ctx, w.store, "index", bytes.NewReader(data), desc); err != nil {
		return desc, err
	}
	named := desc
	named.Annotations = map[string]string{images.AnnotationImageName: name, ocispec.AnnotationRefName: name}
	top, err := json.Marshal(ocispec.Index{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex, Manifests: []ocispec.Descriptor{named},
	})
	if err != nil {
		return desc, err
	}
	version, err := json.Marshal(ocispec.ImageLayout{Version: ocispec.ImageLayoutVersion})
	if err != nil {
		return desc, err
	}
	return desc, errors.Join(
		os.RemoveAll(filepath.Join(dir, "ingest")),
		os.WriteFile(filepath.Join(dir, ocispec.ImageLayoutFile), version, 0o600),
		os.WriteFile(filepath.Join(dir, ocispec.ImageIndexFile), top, 0o600),
	)
}

// Is tells whether a directory is an OCI layout.
func Is(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, ocispec.ImageLayoutFile))
	return err == nil
}

// Unpack unpacks the checkpoint of a layout into a directory.
func Unpack(ctx context.Context, dir, to string) error {
	data, err := os.ReadFile(filepath.Join(dir, ocispec.ImageIndexFile))
	if err != nil {
		return err
	}
	store, err := local.NewStore(dir)
	if err != nil {
		return err
	}
	defer os.Remove(filepath.Join(dir, "ingest")) // which NewStore made
	var top ocispec.Index
	if err := json.Unmarshal(data, &top); err != nil {
		return fmt.Errorf("%s: %w", ocispec.ImageIndexFile, err)
	}
	desc, err := find(ctx, store, top)
	if err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	blob, err := store.ReaderAt(ctx, desc)
	if err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	defer blob.Close()
	if blob.Size() != desc.Size {
		return fmt.Errorf("%s: checkpoint %s has %d bytes, and the index says %d", dir, desc.Digest, blob.Size(), desc.Size)
	}
	// Its files have digests in the snapshot's own manifest.
	_, err = archive.Apply(ctx, to, io.NewSectionReader(blob, 0, blob.Size()))
	return err
}

// find finds the checkpoint: in the index itself, or in the only index that it
// lists.
func find(ctx context.Context, store content.Provider, top ocispec.Index) (ocispec.Descriptor, error) {
	var found []ocispec.Descriptor
	for _, d := range top.Manifests {
		switch {
		case d.MediaType == images.MediaTypeContainerd1Checkpoint:
			return d, nil
		case images.IsIndexType(d.MediaType) && d.Size <= maxIndex:
			data, err := content.ReadBlob(ctx, store, d)
			if err != nil {
				return d, err
			}
			if digest.FromBytes(data) != d.Digest {
				return d, fmt.Errorf("the index %s is damaged", d.Digest)
			}
			var inner ocispec.Index
			if err := json.Unmarshal(data, &inner); err != nil {
				return d, fmt.Errorf("index %s: %w", d.Digest, err)
			}
			for _, d := range inner.Manifests {
				if d.MediaType == images.MediaTypeContainerd1Checkpoint {
					found = append(found, d)
				}
			}
		}
	}
	if len(found) != 1 {
		return ocispec.Descriptor{}, fmt.Errorf("it has %d checkpoints, and not one", len(found))
	}
	return found[0], nil
}
