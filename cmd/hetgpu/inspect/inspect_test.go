// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/plugins/content/local"
	"github.com/klauspost/compress/zstd"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/snapshot"
)

var update = flag.Bool("update", false, "write the golden files")

// files is a snapshot, by name.
type files map[string]string

// stock is what the stock shim leaves. The images in testdata are of CRIU
// 4.2.1: a container with a launcher (1), a process that has ended (6), one
// with three threads (7, 9, 10), and the child of that one (8).
func stock(t *testing.T) files {
	t.Helper()
	all := files{
		"mm-1.img": "memory", "pages-1.img": strings.Repeat("page", 5000), "descriptors.json": "[]", "dump.log": "(00.1) fine",
	}
	paths, err := filepath.Glob("testdata/criu/*.img")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no images: %v", err)
	}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all[filepath.Base(path)] = string(data)
	}
	return all
}

// gpu is a snapshot of ours.
func gpu(t *testing.T, edit func(*snapshot.Manifest)) files {
	t.Helper()
	t.Helper()
	all := stock(t)
	m := &snapshot.Manifest{
		Version: snapshot.Version, Engine: snapshot.EngineDriver,
		Created:   time.Date(2026, 11, 20, 8, 30, 0, 0, time.UTC),
		Container: snapshot.Container{ID: "train", Namespace: "default", Hostname: "train", CgroupsPath: "/default/train"},
		Host:      snapshot.Host{Kernel: "6.18.0", Arch: "amd64", Runc: "runc version 1.5.2", CRIU: "4.2.1", Driver: "580.159.04", API: 13000},
		Options:   snapshot.Options{TCPEstablished: true, FileLocks: true},
		Devices: []gpuplugin.Device{{
			UUID: "GPU-0f1e", Vendor: "nvidia", Model: "NVIDIA H200", MemoryBytes: 150754820096, UsedBytes: 2 << 30, PCI: "0000:81:00.0",
		}},
		Processes: []snapshot.Process{
			{NSPIDs: []int{40, 7}, Command: "trainer", State: gpuplugin.StateRunning},
			{NSPIDs: []int{8}, Command: "loader\x1b[1m", State: gpuplugin.StateCheckpointed},
		},
		Phases: []snapshot.Phase{{Name: "preflight", Seconds: 0.0104}, {Name: "gpu-suspend", Seconds: 1.4}, {Name: "dump", Seconds: 6.1}},
	}
	for name, text := range all {
		if !snapshot.Belongs(name) {
			continue
		}
		f, err := snapshot.ReadFile(t.Context(), name, strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		m.Files = append(m.Files, f)
	}
	if edit != nil {
		edit(m)
	}
	data, err := snapshot.Encode(m)
	if err != nil {
		t.Fatal(err)
	}
	all[snapshot.ManifestName] = string(data)
	return all
}

func (f files) without(name string) files { delete(f, name); return f }

func (f files) with(name, text string) files { f[name] = text; return f }

// dir writes the files into a directory.
func (f files) dir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range f {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// tar packs the files below a prefix.
func (f files) tar(t *testing.T, prefix string, more ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range slices.Sorted(maps.Keys(f)) {
		more = append(more, tar.Header{Name: prefix + name, Typeflag: tar.TypeReg, Mode: 0o600, Size: int64(len(f[name]))})
	}
	for _, h := range more {
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		text, ours := f[strings.TrimPrefix(h.Name, prefix)]
		if !ours || int64(len(text)) != h.Size {
			text = strings.Repeat("x", int(h.Size))
		}
		if _, err := io.WriteString(w, text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func write(t *testing.T, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "snapshot.tar")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func gzipped(t *testing.T, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func zstded(t *testing.T, data []byte) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return w.EncodeAll(data, nil)
}

// A good snapshot is the same in whatever it is packed.
func TestSources(t *testing.T) {
	snap := gpu(t, nil)
	var bytes int64
	for name, text := range snap {
		if snapshot.Belongs(name) {
			bytes += int64(len(text))
		}
	}
	kubelet := []tar.Header{
		{Name: "spec.dump", Typeflag: tar.TypeReg, Size: 3},
		{Name: "rootfs-diff.tar", Typeflag: tar.TypeReg, Size: 70000},
		{Name: "checkpoint/", Typeflag: tar.TypeDir},
	}
	for name, source := range map[string]struct{ kind, path string }{
		"directory":         {KindDirectory, snap.dir(t)},
		"containerd's tar":  {KindTar, write(t, snap.tar(t, ""))},
		"tar of a folder":   {KindTar, write(t, snap.tar(t, "./"))},
		"the kubelet's tar": {KindTar, write(t, snap.tar(t, "checkpoint/", kubelet...))},
		"gzip":              {KindTar, write(t, gzipped(t, snap.tar(t, "")))},
		"zstd":              {KindTar, write(t, zstded(t, snap.tar(t, "")))},
		"absolute names":    {KindTar, write(t, snap.tar(t, "/etc/"))},
		"names that climb":  {KindTar, write(t, snap.tar(t, "../../x/"))},
	} {
		for _, noVerify := range []bool{false, true} {
			r, err := Inspect(t.Context(), source.path, Options{NoVerify: noVerify})
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			digests := DigestsMatch
			if noVerify {
				digests = DigestsNotRead
			}
			if r.Source != (Source{Kind: source.kind, Name: source.path}) || r.Digests != digests || r.Manifest.Container.ID != "train" ||
				r.Content.Files != len(r.Manifest.Files) || r.Content.Bytes != bytes || !slices.Equal(r.Content.Others, []string{"dump.log"}) ||
				!slices.Equal(r.Processes, tree) {
				t.Errorf("%s: %+v", name, r)
			}
		}
	}
}

// What is wrong is found, and said alike of a directory and of a tar.
func TestProblems(t *testing.T) {
	pages := strings.Repeat("page", 5000)
	for _, tc := range []struct {
		name, text string
		snap       files
		// unread means that it shows without reading the files.
		unread bool
	}{
		{"one bit", "chunk 0", gpu(t, nil).with("pages-1.img", "q"+pages[1:]), false},
		{"cut", "19999 bytes", gpu(t, nil).with("pages-1.img", pages[1:]), true},
		{"missing", "mm-1.img is missing", gpu(t, nil).without("mm-1.img"), true},
		{"too many", "core-2.img is not in the manifest", gpu(t, nil).with("core-2.img", "x"), true},
		{"manifest", "damaged", gpu(t, nil).with(snapshot.ManifestName, "{}"), true},
		{"no parent", "parent", gpu(t, func(m *snapshot.Manifest) { m.Options.Incremental = true }), true},
	} {
		for kind, path := range map[string]string{"directory": tc.snap.dir(t), "tar": write(t, tc.snap.tar(t, ""))} {
			for _, noVerify := range []bool{false, true} {
				r, err := Inspect(t.Context(), path, Options{NoVerify: noVerify})
				if noVerify && !tc.unread {
					if err != nil || r.Digests != DigestsNotRead {
						t.Errorf("%s in a %s, not read: %v", tc.name, kind, err)
					}
					continue
				}
				if !errors.Is(err, ErrProblems) || len(r.Problems) != 1 || !strings.Contains(r.Problems[0], tc.text) {
					t.Errorf("%s in a %s: %v, %+v; want one problem with %q", tc.name, kind, err, r, tc.text)
				}
				if r != nil && r.Digests == DigestsMatch {
					t.Errorf("%s in a %s: digests match", tc.name, kind)
				}
			}
		}
	}
}

func TestHostileTars(t *testing.T) {
	snap := gpu(t, nil)
	good := snap.tar(t, "")
	twice := tar.Header{Name: "core-1.img", Typeflag: tar.TypeReg, Size: int64(len(snap["core-1.img"]))}
	for _, tc := range []struct {
		name, text string
		data       []byte
		problem    bool
	}{
		{"empty", "not a tar", nil, false},
		{"text", "not a readable tar", []byte(strings.Repeat("text", 1000)), false},
		{"cut", "unexpected EOF", good[:len(good)/2], false},
		{"cut gzip", "unexpected EOF", gzipped(t, good)[:200], false},
		{"only a magic", "", []byte{0x1f, 0x8b, 0, 0}, false},
		{"something else", "no snapshot found", files{"README": "x"}.tar(t, ""), false},
		{"two snapshots", "2 snapshots", append(snap.tar(t, "a/")[:len(snap.tar(t, "a/"))-1024], snap.tar(t, "b/")...), false},
		{"a link for a file", "core-2.img is no regular file", snap.tar(t, "", tar.Header{Name: "core-2.img", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"}), true},
		{"a device for a file", "no regular file", snap.tar(t, "", tar.Header{Name: "pages-9.img", Typeflag: tar.TypeChar}), true},
		{"a file twice", "core-1.img is there twice", snap.tar(t, "", twice), true},
		{"a file twice, no manifest", "core-1.img is there twice", stock(t).tar(t, "", twice), true},
		{"a parent", "parent", snap.tar(t, "", tar.Header{Name: "parent", Typeflag: tar.TypeSymlink, Linkname: ".."}), true},
		{"a manifest twice", "hetgpu.json is there twice", snap.tar(t, "", tar.Header{Name: "hetgpu.json", Typeflag: tar.TypeReg, Size: int64(len(snap["hetgpu.json"]))}), true},
		{"a name with control characters", "plain file name", snap.tar(t, "", tar.Header{Name: "core\x1b.img", Typeflag: tar.TypeReg, Size: 1}), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, err := Inspect(t.Context(), write(t, tc.data), Options{})
			if !tc.problem {
				if err == nil || errors.Is(err, ErrProblems) || !strings.Contains(err.Error(), tc.text) {
					t.Fatalf("%v, want %q", err, tc.text)
				}
				return
			}
			if !errors.Is(err, ErrProblems) || !strings.Contains(strings.Join(r.Problems, "\n"), tc.text) {
				t.Fatalf("%v, %+v; want %q", err, r, tc.text)
			}
		})
	}
}

// A header that claims more than anybody has is refused before it is read.
func TestHugeEntry(t *testing.T) {
	var b bytes.Buffer
	if err := tar.NewWriter(&b).WriteHeader(&tar.Header{Name: "pages-1.img", Size: maxBytes + 1, Format: tar.FormatPAX}); err != nil {
		t.Fatal(err)
	}
	_, err := Inspect(t.Context(), write(t, b.Bytes()), Options{})
	if err == nil || !strings.Contains(err.Error(), "bytes in the tar") {
		t.Fatal(err)
	}
}

func TestNothingThere(t *testing.T) {
	for name, text := range map[string]string{
		t.TempDir():                              "no snapshot found",
		filepath.Join(t.TempDir(), "missing"):    "no such file",
		"./missing":                              "no such file",
		"/dev/null":                              "neither a directory nor a file",
		"example.com/checkpoint:one":             "there is no file example.com/checkpoint:one",
		files{"dump.log": "x"}.dir(t):            "no snapshot found",
		files{"hetgpu-gpu0.img": "x"}.dir(t):     "no snapshot found",
		write(t, files{"a.img": "x"}.tar(t, "")): "no snapshot found",
	} {
		r, err := Inspect(t.Context(), name, Options{Address: filepath.Join(t.TempDir(), "no.sock"), Namespace: "default"})
		if r != nil || err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v, %v; want %q", name, r, err, text)
		}
	}
}

func TestCanceled(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("the user gave up"))
	snap := gpu(t, nil)
	for _, path := range []string{snap.dir(t), write(t, snap.tar(t, ""))} {
		r, err := Inspect(ctx, path, Options{})
		if err == nil || errors.Is(err, ErrProblems) || !strings.Contains(err.Error(), "the user gave up") {
			t.Errorf("%v, %v", r, err)
		}
	}
}

// put stores a blob as containerd does.
func put(t *testing.T, store content.Store, mediaType string, data []byte) ocispec.Descriptor {
	t.Helper()
	desc := ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(data), Size: int64(len(data))}
	if err := content.WriteBlob(t.Context(), store, desc.Digest.String(), bytes.NewReader(data), desc); err != nil {
		t.Fatal(err)
	}
	return desc
}

func TestImage(t *testing.T) {
	store, err := local.NewStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	index := func(manifests ...ocispec.Descriptor) ocispec.Descriptor {
		data, err := json.Marshal(ocispec.Index{Manifests: manifests})
		if err != nil {
			t.Fatal(err)
		}
		return put(t, store, ocispec.MediaTypeImageIndex, data)
	}
	config := put(t, store, images.MediaTypeContainerd1CheckpointConfig, []byte("spec"))
	good := put(t, store, images.MediaTypeContainerd1Checkpoint, gpu(t, nil).tar(t, ""))
	bad := put(t, store, images.MediaTypeContainerd1Checkpoint, gpu(t, nil).with("core-1.img", "two").tar(t, ""))

	r, err := readImage(t.Context(), store, "ckpt:1", index(config, good), Options{})
	if err != nil || r.Digests != DigestsMatch || r.Source != (Source{KindImage, "ckpt:1", good.Digest.String()}) {
		t.Errorf("%+v, %v", r, err)
	}
	r, err = readImage(t.Context(), store, "ckpt:1", index(config, bad), Options{})
	if err != nil || len(r.Problems) != 1 || r.Digests != DigestsDiffer {
		t.Errorf("%+v, %v", r, err)
	}
	gone := good
	gone.Digest = digest.FromString("gone")
	for name, desc := range map[string]ocispec.Descriptor{
		"no checkpoint": index(config), "not an index": config, "no index": gone, "no blob": index(gone),
		"large index": {MediaType: ocispec.MediaTypeImageIndex, Digest: good.Digest, Size: maxIndex + 1},
		"not JSON":    put(t, store, ocispec.MediaTypeImageIndex, []byte("{")),
	} {
		if r, err := readImage(t.Context(), store, "ckpt:1", desc, Options{}); err == nil || !strings.Contains(err.Error(), "ckpt:1") {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
}

// The output, for people and for programs. -update writes the golden files.
func TestGolden(t *testing.T) {
	for name, snap := range map[string]files{
		"gpu": gpu(t, nil), "stock": stock(t),
		"damaged": gpu(t, nil).with("core-1.img", "two").without("mm-1.img").with("x\x1b[1m.img", "x"),
	} {
		r := newReport(KindTar, "snapshot.tar")
		if err := r.readTar(t.Context(), bytes.NewReader(snap.tar(t, "")), Options{NoVerify: name == "damaged"}); err != nil {
			t.Fatal(err)
		}
		var text, asJSON bytes.Buffer
		if err := r.Print(&text); err != nil {
			t.Fatal(err)
		}
		if strings.ContainsRune(text.String(), '\x1b') {
			t.Errorf("%s: the output has an escape", name)
		}
		enc := json.NewEncoder(&asJSON)
		enc.SetIndent("", "  ")
		if err := enc.Encode(r); err != nil {
			t.Fatal(err)
		}
		golden(t, name+".txt", text.Bytes())
		golden(t, name+".json", asJSON.Bytes())
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s:\n%s\nwant:\n%s", name, got, want)
	}
}
