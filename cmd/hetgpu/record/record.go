// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Package record is what a snapshot keeps of a container's record in
// containerd, so that the container can be made anew: hetgpu-container.json
// (docs/formats.md).
package record

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/typeurl/v2"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/hetgpu/containerd-shim-hetgpu/runtime/snapshot"
)

const (
	// version is that of the format.
	version = 1
	// most is the largest file that is read.
	most = 4 << 20
)

// Container is the record.
type Container struct {
	Version int    `json:"version"`
	ID      string `json:"id"`
	// Image is missing for a container without one.
	Image *Image `json:"image,omitempty"`
	// Labels are the container's, without those by which a manager of containers
	// knows its own.
	Labels      map[string]string `json:"labels"`
	Runtime     Runtime           `json:"runtime"`
	Snapshotter string            `json:"snapshotter"`
	// Parent is the snapshot below the container's own.
	Parent string `json:"parent"`
	// SnapshotLabels are those that say how its owners are mapped.
	SnapshotLabels map[string]string `json:"snapshot_labels,omitempty"`
	// Spec is the OCI spec, as it was before the shim edited it.
	Spec Any `json:"spec"`
}

// Image is the image of which the container was made.
type Image struct {
	Name   string             `json:"name"`
	Target ocispec.Descriptor `json:"target"`
}

// Runtime is the container's runtime.
type Runtime struct {
	Name    string `json:"name"`
	Options *Any   `json:"options,omitempty"`
}

// Any is a message of containerd's. What is JSON is stored as it is.
type Any struct {
	TypeURL string          `json:"type_url"`
	JSON    json.RawMessage `json:"json,omitempty"`
	Value   []byte          `json:"value,omitempty"`
}

func pack(a typeurl.Any) Any {
	p := Any{TypeURL: a.GetTypeUrl()}
	if value := a.GetValue(); json.Valid(value) {
		p.JSON = value
	} else {
		p.Value = value
	}
	return p
}

// Proto is the message.
func (a Any) Proto() *anypb.Any {
	value := a.Value
	if value == nil {
		value = a.JSON
	}
	return &anypb.Any{TypeUrl: a.TypeURL, Value: value}
}

// Of makes the record of a container.
func Of(ctx context.Context, client *containerd.Client, info containers.Container) (*Container, error) {
	r := &Container{Version: version, ID: info.ID, Labels: labels(info.Labels), Snapshotter: info.Snapshotter, Spec: pack(info.Spec)}
	r.Runtime.Name = info.Runtime.Name
	if opts := info.Runtime.Options; opts != nil && len(opts.GetValue()) > 0 {
		packed := pack(opts)
		r.Runtime.Options = &packed
	}
	if info.Image != "" {
		img, err := client.ImageService().Get(ctx, info.Image)
		if err != nil {
			return nil, fmt.Errorf("the container's image: %w", err)
		}
		r.Image = &Image{Name: img.Name, Target: img.Target}
	}
	if info.SnapshotKey != "" {
		st, err := client.SnapshotService(info.Snapshotter).Stat(ctx, info.SnapshotKey)
		if err != nil {
			return nil, fmt.Errorf("the container's snapshot: %w", err)
		}
		r.Parent = st.Parent
		for _, key := range []string{snapshots.LabelSnapshotUIDMapping, snapshots.LabelSnapshotGIDMapping} {
			if value, ok := st.Labels[key]; ok {
				if r.SnapshotLabels == nil {
					r.SnapshotLabels = make(map[string]string)
				}
				r.SnapshotLabels[key] = value
			}
		}
	}
	return r, nil
}

// labels leaves out those by which nerdctl and the kubelet's part of containerd
// know their containers: they would take another for the one that was saved.
func labels(all map[string]string) map[string]string {
	kept := make(map[string]string, len(all))
	maps.Copy(kept, all)
	maps.DeleteFunc(kept, func(key, _ string) bool {
		return strings.HasPrefix(key, "io.cri-containerd.") || strings.HasPrefix(key, "nerdctl/")
	})
	return kept
}

// Encode returns the file's contents.
func (r *Container) Encode() ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(r); err != nil {
		return nil, fmt.Errorf("the container's record: %w", err)
	}
	if out.Len() > most/2 {
		return nil, fmt.Errorf("the container's record has %d bytes", out.Len())
	}
	return bytes.TrimSpace(out.Bytes()), nil
}

// Read reads it from a snapshot, and proves that it is what was saved.
func Read(ctx context.Context, s *snapshot.Snapshot) (*Container, error) {
	found := false
	for _, f := range s.Manifest.Files {
		found = found || f.Name == snapshot.RecordName
	}
	if !found {
		return nil, fmt.Errorf("%s has no %s: it was not made by hetgpu checkpoint; make the container yourself, and its task by containerd's client (WithRestoreImagePath)", s.Dir, snapshot.RecordName)
	}
	if err := s.Verify(ctx, func(f snapshot.File) bool { return f.Name == snapshot.RecordName }); err != nil {
		return nil, err
	}
	data, err := snapshot.ReadSmall(s.Dir, snapshot.RecordName, most)
	if err != nil {
		return nil, err
	}
	r, err := decode(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", snapshot.RecordName, err)
	}
	return r, nil
}

func decode(data []byte) (*Container, error) {
	r := &Container{}
	if err := json.Unmarshal(data, r); err != nil {
		return nil, err
	}
	if r.Version != version {
		return nil, fmt.Errorf("version %d, and this program reads %d: use the hetGPU that made it, or a newer one", r.Version, version)
	}
	if r.ID == "" || r.Spec.TypeURL == "" || r.Runtime.Name == "" {
		return nil, errors.New("no id, spec or runtime")
	}
	if r.Image != nil {
		if err := r.Image.Target.Digest.Validate(); err != nil {
			return nil, fmt.Errorf("image %q: %w", r.Image.Name, err)
		}
	}
	return r, nil
}

// Digest is the image's.
func (i *Image) Digest() digest.Digest { return i.Target.Digest }
