// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package task

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/hetgpu/containerd-shim-hetgpu/runtime/rootfs"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/snapshot"
	"github.com/hetgpu/containerd-shim-hetgpu/shim/shortstop"
)

// What is told is in the client's file, which goes at the end.
func TestProgress(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, shortstop.ProgressName)
	must(t, os.WriteFile(name, nil, 0o600))
	p, err := openProgress(dir)
	must(t, err)
	p.Begin("dump")
	p.Expect(7)
	data, err := os.ReadFile(name)
	must(t, err)
	if string(data) != "{\"phase\":\"dump\"}\n{\"expect\":7}\n" {
		t.Errorf("%q", data)
	}
	p.close(dir)
	p.Begin("later")
	if _, err := os.Stat(name); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file: %v", err)
	}
	// Without one nobody is told.
	p, err = openProgress(dir)
	must(t, err)
	p.Begin("dump")
	p.close(dir)
}

// A root that nothing can be written to has an empty layer.
func TestCompanionWrites(t *testing.T) {
	dir := t.TempDir()
	w := &companion{dir: dir, layer: true, record: []byte(`{"id":"c"}`)}
	must(t, w.Capture(t.Context()))
	must(t, w.Write(t.Context(), dir))
	must(t, w.close())
	if data, err := os.ReadFile(filepath.Join(dir, snapshot.RecordName)); err != nil || string(data) != `{"id":"c"}` {
		t.Errorf("%q, %v", data, err)
	}
	f, err := os.Open(filepath.Join(dir, snapshot.LayerName))
	must(t, err)
	defer f.Close()
	if h, err := tar.NewReader(f).Next(); !errors.Is(err, io.EOF) {
		t.Errorf("%+v, %v", h, err)
	}
}

func TestCompanionNotOverlay(t *testing.T) {
	c := &container{bundle: t.TempDir()}
	must(t, os.Mkdir(filepath.Join(c.bundle, "rootfs"), 0o700))
	if _, err := c.companion("/i", &shortstop.Options{Layer: true}); !errors.Is(err, rootfs.ErrNotOverlay) || !errdefs.IsFailedPrecondition(err) {
		t.Errorf("%v", err)
	}
	if w, err := c.companion("/i", &shortstop.Options{}); err != nil || w.upper != "" || w.layer {
		t.Errorf("%+v, %v", w, err)
	}
}
