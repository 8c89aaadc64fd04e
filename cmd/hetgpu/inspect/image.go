// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

const (
	dialTimeout = 10 * time.Second
	// storeTimeout is for one question to containerd, not for the reading of
	// the checkpoint.
	storeTimeout = 30 * time.Second
	// maxIndex is the largest list of blobs that is read.
	maxIndex = 4 << 20
)

// image reads the checkpoint in a containerd image, out of its content store.
func image(ctx context.Context, ref string, opts Options) (*Report, error) {
	// The client would wait for a socket to appear.
	_, err := os.Stat(opts.Address)
	var client *containerd.Client
	if err == nil {
		client, err = containerd.New(opts.Address, containerd.WithTimeout(dialTimeout))
	}
	if err != nil {
		return nil, fmt.Errorf("there is no file %s, and containerd can't be asked for an image of that name: %w", ref, err)
	}
	defer func() { _ = client.Close() }() // it was only asked
	ctx = namespaces.WithNamespace(ctx, opts.Namespace)
	found, err := lookup(ctx, client, ref)
	if err != nil {
		return nil, fmt.Errorf("there is no file %s; image in containerd's namespace %s: %w", ref, opts.Namespace, err)
	}
	return readImage(ctx, client.ContentStore(), ref, found, opts)
}

func lookup(ctx context.Context, client *containerd.Client, ref string) (ocispec.Descriptor, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, storeTimeout, fmt.Errorf("no answer within %s", storeTimeout))
	defer cancel()
	img, err := client.ImageService().Get(ctx, ref)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	return img.Target, nil
}

// readImage reads the checkpoint that an index lists.
func readImage(ctx context.Context, store content.Provider, ref string, index ocispec.Descriptor, opts Options) (*Report, error) {
	desc, err := checkpointOf(ctx, store, index)
	if err != nil {
		return nil, fmt.Errorf("image %s: %w", ref, err)
	}
	blob, err := store.ReaderAt(ctx, desc)
	if err != nil {
		return nil, fmt.Errorf("image %s: %w", ref, err)
	}
	defer blob.Close()
	r := newReport(KindImage, ref)
	r.Source.Digest = desc.Digest.String()
	if err := r.readTar(ctx, io.NewSectionReader(blob, 0, blob.Size()), opts); err != nil {
		return nil, fmt.Errorf("image %s: %w", ref, err)
	}
	return r, nil
}

// checkpointOf finds the checkpoint's tar in the index, as containerd's client
// does at a restore: the first of its media type.
func checkpointOf(ctx context.Context, store content.Provider, index ocispec.Descriptor) (ocispec.Descriptor, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, storeTimeout, fmt.Errorf("no answer within %s", storeTimeout))
	defer cancel()
	var list ocispec.Index
	if !images.IsIndexType(index.MediaType) {
		return ocispec.Descriptor{}, fmt.Errorf("%w: it is a %s, and a checkpoint is an index", ErrNoSnapshot, index.MediaType)
	}
	if index.Size > maxIndex {
		return ocispec.Descriptor{}, fmt.Errorf("its index has %d bytes", index.Size)
	}
	data, err := content.ReadBlob(ctx, store, index)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	if err := json.Unmarshal(data, &list); err != nil {
		return ocispec.Descriptor{}, fmt.Errorf("its index: %w", err)
	}
	for _, d := range list.Manifests {
		if d.MediaType == images.MediaTypeContainerd1Checkpoint {
			return d, nil
		}
	}
	return ocispec.Descriptor{}, fmt.Errorf("%w: its index lists no %s", ErrNoSnapshot, images.MediaTypeContainerd1Checkpoint)
}
