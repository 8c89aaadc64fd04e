// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// ImageName is the name under which the tests' image is imported.
const ImageName = "test.hetgpu.local/busybox:latest"

// Image is an image made from busybox and some files.
type Image struct {
	// Name is the reference that an import gives it.
	Name string
	// Busybox is a statically linked busybox.
	Busybox string
	// Files are added: path in the image to path on this machine.
	Files map[string]string
	// Layer replaces all of these: a layer as it is.
	Layer []byte
	// Annotations are the manifest's.
	Annotations map[string]string
	// Command is what a container runs that is told nothing else; a shell if there
	// is none.
	Command []string
}

// LibC are the files that a dynamic program needs to run, by their paths in an
// image.
func LibC(ctx context.Context) (map[string]string, error) {
	files := map[string]string{}
	for name, at := range map[string]string{"ld-linux-x86-64.so.2": "/lib64/", "libc.so.6": "/lib/", "libdl.so.2": "/lib/", "libpthread.so.0": "/lib/"} {
		out, err := exec.CommandContext(ctx, "cc", "-print-file-name="+name).Output()
		file := strings.TrimSpace(string(out))
		if err == nil && !filepath.IsAbs(file) {
			err = fmt.Errorf("cc knows only %q", file)
		}
		if err != nil {
			return nil, fmt.Errorf("find %s: %w", name, err)
		}
		files[at+name] = file
	}
	return files, nil
}

// FindBusybox returns the host's busybox, if it is a static one.
func FindBusybox() (string, error) {
	file, err := exec.LookPath("busybox")
	if err != nil {
		return "", fmt.Errorf("install busybox-static or run 'make setup': %w", err)
	}
	return file, nil
}

// Write writes the image as an OCI layout in a tar, the same bytes each time.
func (im Image) Write(ctx context.Context, w io.Writer) error {
	layer := im.Layer
	if layer == nil {
		var err error
		if layer, err = im.layer(ctx); err != nil {
			return err
		}
	}
	command := im.Command
	if command == nil {
		command = []string{"/bin/sh"}
	}
	config, err := json.Marshal(ocispec.Image{
		Platform: ocispec.Platform{Architecture: runtime.GOARCH, OS: "linux"},
		Config:   ocispec.ImageConfig{Env: []string{"PATH=/bin"}, Cmd: command},
		RootFS:   ocispec.RootFS{Type: "layers", DiffIDs: []digest.Digest{digest.FromBytes(layer)}},
	})
	if err != nil {
		return err
	}
	manifest, err := json.Marshal(ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2},
		MediaType: ocispec.MediaTypeImageManifest,
		Config:    descriptor(ocispec.MediaTypeImageConfig, config),
		Layers:    []ocispec.Descriptor{descriptor(ocispec.MediaTypeImageLayer, layer)},

		Annotations: im.Annotations,
	})
	if err != nil {
		return err
	}
	target := descriptor(ocispec.MediaTypeImageManifest, manifest)
	target.Annotations = map[string]string{"io.containerd.image.name": im.Name, ocispec.AnnotationRefName: "latest"}
	index, err := json.Marshal(ocispec.Index{
		Versioned: specs.Versioned{SchemaVersion: 2},
		MediaType: ocispec.MediaTypeImageIndex,
		Manifests: []ocispec.Descriptor{target},
	})
	if err != nil {
		return err
	}
	out := tar.NewWriter(w)
	err = writeFile(out, ocispec.ImageLayoutFile, 0o644, []byte(`{"imageLayoutVersion":"1.0.0"}`))
	err = errors.Join(err, writeFile(out, ocispec.ImageIndexFile, 0o644, index))
	for _, blob := range [][]byte{layer, config, manifest} {
		err = errors.Join(err, writeFile(out, "blobs/sha256/"+digest.FromBytes(blob).Encoded(), 0o644, blob))
	}
	return errors.Join(err, out.Close())
}

// layer is the root file system: busybox with a link for each of its commands,
// the directories that programs expect, and Files.
func (im Image) layer(ctx context.Context) ([]byte, error) {
	list, err := exec.CommandContext(ctx, im.Busybox, "--list").Output()
	if err != nil {
		return nil, fmt.Errorf("list the commands of %s: %w", im.Busybox, err)
	}
	var buf bytes.Buffer
	out := tar.NewWriter(&buf)
	for _, dir := range []string{"bin", "dev", "etc", "proc", "run", "sys", "root", "var"} {
		err = errors.Join(err, writeDir(out, dir, 0o755))
	}
	err = errors.Join(err, writeDir(out, "tmp", 0o1777),
		writeFile(out, "etc/passwd", 0o644, []byte("root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n")),
		writeFile(out, "etc/group", 0o644, []byte("root:x:0:\nnogroup:x:65534:\n")),
		copyFile(out, "bin/busybox", im.Busybox))
	for name := range strings.FieldsSeq(string(list)) {
		if name != "busybox" {
			err = errors.Join(err, out.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: "bin/" + name, Linkname: "busybox", Mode: 0o777}))
		}
	}
	inImage := make([]string, 0, len(im.Files))
	for name := range im.Files {
		inImage = append(inImage, name)
	}
	slices.Sort(inImage)
	for _, name := range inImage {
		err = errors.Join(err, copyFile(out, strings.TrimPrefix(path.Clean(name), "/"), im.Files[name]))
	}
	err = errors.Join(err, out.Close())
	return buf.Bytes(), err
}

// Import loads an image into the daemon and unpacks it.
func (d *Daemon) Import(ctx context.Context, im Image) (containerd.Image, error) {
	ctx = d.Context(ctx)
	var buf bytes.Buffer
	if err := im.Write(ctx, &buf); err != nil {
		return nil, err
	}
	if _, err := d.Client.Import(ctx, &buf); err != nil {
		return nil, fmt.Errorf("import %s: %w", im.Name, err)
	}
	image, err := d.Client.GetImage(ctx, im.Name)
	if err != nil {
		return nil, err
	}
	return image, image.Unpack(ctx, d.Snapshotter)
}

// WaitImage waits until the CRI has seen an image, which it marks.
func (d *Daemon) WaitImage(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(d.Context(ctx), startTimeout)
	defer cancel()
	return Eventually(ctx, "the CRI knows "+name, func() error {
		im, err := d.Client.GetImage(ctx, name)
		if err != nil {
			return Permanent(err)
		}
		// containerd 2.4, internal/cri/labels.
		if im.Labels()["io.cri-containerd.image"] != "managed" {
			return errors.New("it is not marked yet")
		}
		return nil
	})
}

func descriptor(mediaType string, blob []byte) ocispec.Descriptor {
	return ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(blob), Size: int64(len(blob))}
}

func writeDir(out *tar.Writer, name string, mode int64) error {
	return out.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: mode})
}

func writeFile(out *tar.Writer, name string, mode int64, data []byte) error {
	err := out.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(data))})
	if err != nil {
		return err
	}
	_, err = out.Write(data)
	return err
}

func copyFile(out *tar.Writer, name, from string) error {
	data, err := os.ReadFile(filepath.Clean(from))
	if err != nil {
		return err
	}
	st, err := os.Stat(from)
	if err != nil {
		return err
	}
	return writeFile(out, name, int64(st.Mode().Perm()), data)
}
