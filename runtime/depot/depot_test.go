// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package depot

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hetgpu/containerd-shim-hetgpu/runtime/snapshot"
)

// needRoot skips what only root's files can show.
func needRoot(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("files of root's can be made by root only")
	}
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// record is a container's record with a spec.
const record = `{"version":1,"id":"c","spec":{"type_url":"x","json":{"hostname":"h"}}}`

// directory makes a snapshot's directory.
func directory(t *testing.T, dir string) {
	t.Helper()
	must(t, os.Mkdir(dir, 0o700),
		os.WriteFile(filepath.Join(dir, snapshot.RecordName), []byte(record), 0o600),
		os.WriteFile(filepath.Join(dir, snapshot.LayerName), nil, 0o600))
}

func TestNames(t *testing.T) {
	for name, good := range map[string]bool{
		"a": true, "snap-1": true, "checkpoint-web_default-main-2026-11-22T02:30:00Z.tar": true, "a@b+c": true, strings.Repeat("a", 255): true,
		"": false, ".": false, "..": false, "../x": false, "/etc": false, "a/b": false, "a/../b": false, ".hidden": false, "-o": false,
		"a\x00": false, "a\n": false, "a b": false, "ä": false, `a\b`: false, "a%2fb": false, strings.Repeat("a", 256): false,
	} {
		_, err := find([]string{t.TempDir()}, name)
		if want := map[bool]error{true: ErrNotFound, false: ErrName}[good]; !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", name, err, want)
		}
	}
}

// What can't be trusted is refused, and not passed over for the next directory.
func TestOpenRefuses(t *testing.T) {
	needRoot(t)
	for name, tc := range map[string]struct {
		prepare func(t *testing.T, dir string)
		want    error
	}{
		"nothing":             {func(*testing.T, string) {}, ErrNotFound},
		"a link":              {func(t *testing.T, dir string) { directory(t, dir+"/x"); must(t, os.Symlink("x", dir+"/snap")) }, ErrUntrusted},
		"a link to nowhere":   {func(t *testing.T, dir string) { must(t, os.Symlink("/nowhere", dir+"/snap")) }, ErrUntrusted},
		"a device":            {func(t *testing.T, dir string) { must(t, unix.Mkfifo(dir+"/snap", 0o600)) }, ErrUntrusted},
		"another's":           {func(t *testing.T, dir string) { directory(t, dir+"/snap"); must(t, os.Chown(dir+"/snap", 1000, 0)) }, ErrUntrusted},
		"for all to write":    {func(t *testing.T, dir string) { directory(t, dir+"/snap"); must(t, os.Chmod(dir+"/snap", 0o777)) }, ErrUntrusted},
		"for a group":         {func(t *testing.T, dir string) { directory(t, dir+"/snap"); must(t, os.Chmod(dir+"/snap", 0o770)) }, ErrUntrusted},
		"another's directory": {func(t *testing.T, dir string) { directory(t, dir+"/snap"); must(t, os.Chown(dir, 1000, 0)) }, ErrUntrusted},
		"a writable one":      {func(t *testing.T, dir string) { directory(t, dir+"/snap"); must(t, os.Chmod(dir, 0o1777)) }, ErrUntrusted},
		"images by a link": {func(t *testing.T, dir string) {
			must(t, os.Mkdir(dir+"/snap", 0o700), os.Symlink("/etc", dir+"/snap/"+imagesDir))
		}, ErrUntrusted},
	} {
		t.Run(name, func(t *testing.T) {
			dir, second := t.TempDir(), t.TempDir()
			must(t, os.Chmod(dir, 0o700), os.Chmod(second, 0o700))
			if name != "nothing" {
				directory(t, second+"/snap")
			}
			tc.prepare(t, dir)
			to := filepath.Join(t.TempDir(), "to")
			if s, err := Open(t.Context(), []string{"/nowhere", dir, second}, "snap", to); !errors.Is(err, tc.want) {
				t.Errorf("%+v, %v, want %v", s, err, tc.want)
			}
			if _, err := os.Lstat(to); !errors.Is(err, fs.ErrNotExist) {
				t.Error("something was unpacked")
			}
		})
	}
}

func TestOpenDirectory(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	must(t, os.Chmod(dir, 0o755))
	directory(t, dir+"/snap")
	s, err := Open(t.Context(), []string{dir}, "snap", dir+"/to")
	must(t, err)
	spec, err := s.Spec()
	if err != nil || string(spec) != `{"hostname":"h"}` || s.Dir != dir+"/snap" || s.Layer != dir+"/snap/"+snapshot.LayerName {
		t.Errorf("%+v, spec %s, %v", s, spec, err)
	}
	for _, wrong := range []string{`{"version":2,"spec":{"json":{}}}`, `{"version":1,"spec":{}}`, `{`} {
		must(t, os.WriteFile(filepath.Join(s.Dir, snapshot.RecordName), []byte(wrong), 0o600))
		if spec, err := s.Spec(); err == nil {
			t.Errorf("%s: spec %s", wrong, spec)
		}
	}
	must(t, os.Remove(filepath.Join(s.Dir, snapshot.RecordName)))
	if _, err := s.Spec(); !errors.Is(err, ErrNoSpec) {
		t.Errorf("without a record: %v", err)
	}
}

// entry is one of an archive; its contents are its name.
func entry(name string) tar.Header {
	return tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(name)), Mode: 0o777, Uid: 1000}
}

// pack makes an archive.
func pack(tb testing.TB, entries ...tar.Header) []byte {
	tb.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, h := range entries {
		if err := w.WriteHeader(&h); err != nil {
			tb.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			if _, err := w.Write([]byte(h.Name)[:h.Size]); err != nil {
				tb.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return out.Bytes()
}

func TestUnpack(t *testing.T) {
	needRoot(t)
	kubelets := []tar.Header{
		{Typeflag: tar.TypeDir, Name: "checkpoint/", Mode: 0o700},
		entry("checkpoint/" + snapshot.ManifestName), entry("checkpoint/pages-1.img"), entry("spec.dump"), entry("rootfs-diff.tar"),
	}
	with := func(more ...tar.Header) []tar.Header { return append(append([]tar.Header{}, kubelets...), more...) }
	for name, tc := range map[string]struct {
		entries []tar.Header
		want    error
		files   []string
	}{
		"the kubelet's": {with(entry("container.log"), entry("status.dump")), nil, []string{"checkpoint/" + snapshot.ManifestName, "checkpoint/pages-1.img", "rootfs-diff.tar", "spec.dump"}},
		"a snapshot's":  {[]tar.Header{entry("./" + snapshot.ManifestName), entry("./core-1.img"), entry("./dump.log")}, nil, []string{"core-1.img", snapshot.ManifestName}},
		"outside":       {with(entry("../x.img"), entry("/etc/x.img"), entry("checkpoint/../../y.img")), nil, []string{"checkpoint/" + snapshot.ManifestName, "checkpoint/pages-1.img", "rootfs-diff.tar", "spec.dump", "x.img", "y.img"}},
		"deeper":        {with(entry("checkpoint/a/b.img")), nil, []string{"checkpoint/" + snapshot.ManifestName, "checkpoint/pages-1.img", "rootfs-diff.tar", "spec.dump"}},
		"twice":         {with(entry("checkpoint/pages-1.img")), ErrArchive, nil},
		"twice, aslant": {with(entry("checkpoint/../checkpoint//pages-1.img")), ErrArchive, nil},
		"a link":        {with(tar.Header{Typeflag: tar.TypeSymlink, Name: "checkpoint/core-1.img", Linkname: "/etc/shadow"}), ErrArchive, nil},
		"a hard link":   {with(tar.Header{Typeflag: tar.TypeLink, Name: "checkpoint/core-1.img", Linkname: "spec.dump"}), ErrArchive, nil},
		"a device":      {with(tar.Header{Typeflag: tar.TypeChar, Name: "checkpoint/core-1.img"}), ErrArchive, nil},
		"a linked directory": {
			[]tar.Header{{Typeflag: tar.TypeSymlink, Name: "checkpoint", Linkname: "/etc"}, entry("checkpoint/core-1.img")},
			nil,
			[]string{"checkpoint/core-1.img"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			must(t, os.Chmod(dir, 0o700), os.WriteFile(dir+"/a.tar", pack(t, tc.entries...), 0o600))
			to := dir + "/to"
			s, err := Open(t.Context(), []string{dir}, "a.tar", to)
			if !errors.Is(err, tc.want) {
				t.Fatalf("%+v, %v, want %v", s, err, tc.want)
			}
			if err != nil {
				return
			}
			if files := tree(t, to); strings.Join(files, " ") != strings.Join(tc.files, " ") {
				t.Errorf("unpacked: %v, want %v", files, tc.files)
			}
		})
	}
}

// tree lists the files below a directory, which are root's alone.
func tree(tb testing.TB, dir string) (files []string) {
	tb.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if info.Mode().Perm()&0o077 != 0 || rootsAlone(path, info) != nil {
			tb.Errorf("%s is %v", path, info.Mode())
		}
		if !d.IsDir() {
			name, err := filepath.Rel(dir, path)
			files = append(files, name)
			if !info.Mode().IsRegular() {
				tb.Errorf("%s is %v", path, info.Mode())
			}
			return err
		}
		return nil
	})
	if err != nil {
		tb.Fatal(err)
	}
	return files
}

// An archive whose files are larger than it is can't fill the disk.
func TestUnpackSparse(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	must(t, os.Chmod(dir, 0o700))
	// A map of no data at all, with the size that the file would have. Go writes no
	// such records, so they get their names afterwards.
	h := tar.Header{Typeflag: tar.TypeReg, Name: "checkpoint/pages-1.img", Size: 512, PAXRecords: map[string]string{
		"HET.sparse.major": "1", "HET.sparse.minor": "0", "HET.sparse.name": "checkpoint/pages-1.img", "HET.sparse.realsize": "1099511627776",
	}}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	must(t, w.WriteHeader(&h))
	_, err := w.Write(append([]byte("1\n1099511627776\n0\n"), make([]byte, 512-18)...))
	must(t, err, w.Close())
	must(t, os.WriteFile(dir+"/a.tar", bytes.ReplaceAll(out.Bytes(), []byte("HET.sparse."), []byte("GNU.sparse.")), 0o600))
	if s, err := Open(t.Context(), []string{dir}, "a.tar", dir+"/to"); !errors.Is(err, ErrArchive) || !strings.Contains(err.Error(), "more bytes") {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestUnpackCanceled(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	must(t, os.Chmod(dir, 0o700), os.WriteFile(dir+"/a.tar", pack(t, entry("spec.dump")), 0o600))
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("enough")
	cancel(cause)
	if _, err := Open(ctx, []string{dir}, "a.tar", dir+"/to"); !errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}
}

// FuzzUnpack: whatever an archive says, only files of root's are made, below the
// directory, and not more than the archive has.
func FuzzUnpack(f *testing.F) {
	f.Add(pack(f, entry("checkpoint/"+snapshot.ManifestName), entry("checkpoint/pages-1.img"), entry("spec.dump")))
	f.Add(pack(f, entry("../../x.img"), tar.Header{Typeflag: tar.TypeSymlink, Name: "checkpoint", Linkname: ".."}, entry("checkpoint/x.img")))
	f.Add([]byte("no tar"))
	f.Fuzz(func(t *testing.T, data []byte) {
		needRoot(t)
		parent := t.TempDir()
		file := filepath.Join(parent, "a.tar")
		must(t, os.WriteFile(file, data, 0o600))
		in, err := os.Open(file)
		must(t, err)
		defer in.Close()
		to := filepath.Join(parent, "to")
		_, err = unpack(t.Context(), in, int64(len(data)), to)
		var sum int64
		for _, name := range tree(t, to) {
			info, err := os.Lstat(filepath.Join(to, name))
			must(t, err)
			sum += info.Size()
		}
		if sum > int64(len(data)) {
			t.Errorf("%d bytes of an archive of %d, %v", sum, len(data), err)
		}
		if others, err := os.ReadDir(parent); err != nil || len(others) != 2 {
			t.Errorf("beside it: %v, %v", others, err)
		}
	})
}
