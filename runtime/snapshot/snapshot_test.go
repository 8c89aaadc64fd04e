// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func jsonOf(m *Manifest) (string, error) {
	data, err := json.Marshal(m)
	return string(data), err
}

func namesIn(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	names := []string{}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func put(t *testing.T, dir, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// big writes a file of the size, with a few bytes that are not zero.
func big(t *testing.T, dir, name string, size int64) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for off := int64(0); off < size; off += ChunkSize / 2 {
		if _, err := f.WriteAt([]byte{byte(off >> 20), 1}, off); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
}

const bigSize = 2*ChunkSize + 4097

// sealed makes a snapshot with files of every kind.
func sealed(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	f, err := Follow(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Stop()
	put(t, dir, "core-1.img", "registers")
	put(t, dir, "empty.img", "")
	put(t, dir, "descriptors.json", "[]")
	put(t, dir, "hetgpu-gpu0.img", "vram")
	put(t, dir, "dump.log", "(00.0) all is well")
	big(t, dir, "pages-1.img", bigSize)
	files, err := f.Seal(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	m := example()
	m.Files = files
	if err := Write(t.Context(), dir, m); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestOpenAndVerify(t *testing.T) {
	dir := sealed(t)
	put(t, dir, "dump.log", "it may change")
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	names := []string{}
	for _, f := range s.Manifest.Files {
		names = append(names, f.Name)
		if IsPages(f) == IsMetadata(f) {
			t.Errorf("%s is of both kinds, or of none", f.Name)
		}
	}
	if want := []string{"core-1.img", "descriptors.json", "empty.img", "hetgpu-gpu0.img", "pages-1.img"}; !slices.Equal(names, want) {
		t.Errorf("files %v, want %v", names, want)
	}
	if want := []string{"dump.log"}; !slices.Equal(s.Extras, want) {
		t.Errorf("extras %v, want %v", s.Extras, want)
	}
	for _, which := range []func(File) bool{nil, IsPages, IsMetadata} {
		if err := s.Verify(t.Context(), which); err != nil {
			t.Error(err)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("the caller gave up"))
	if err := s.Verify(ctx, nil); err == nil || !strings.Contains(err.Error(), "the caller gave up") {
		t.Errorf("Verify with a canceled context: %v", err)
	}
}

func flip(t *testing.T, path string, off int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, off); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 4
	if _, err := f.WriteAt(b, off); err != nil {
		t.Fatal(err)
	}
}

func TestVerifyFindsChanges(t *testing.T) {
	dir := sealed(t)
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name  string
		off   int64
		chunk string
		which func(File) bool
		other func(File) bool
	}{
		{"core-1.img", 3, "chunk 0", IsMetadata, IsPages},
		{"hetgpu-gpu0.img", 0, "chunk 0", IsPages, IsMetadata},
		{"pages-1.img", 5, "chunk 0", IsPages, IsMetadata},
		{"pages-1.img", ChunkSize, "chunk 1", IsPages, IsMetadata},
		{"pages-1.img", bigSize - 1, "chunk 2", IsPages, IsMetadata},
	} {
		path := filepath.Join(dir, tc.name)
		flip(t, path, tc.off)
		for _, which := range []func(File) bool{nil, tc.which} {
			err := s.Verify(t.Context(), which)
			if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), tc.chunk) {
				t.Errorf("%s, byte %d: %v", tc.name, tc.off, err)
			}
		}
		if err := s.Verify(t.Context(), tc.other); err != nil {
			t.Errorf("%s is not of that kind: %v", tc.name, err)
		}
		flip(t, path, tc.off)
	}
	if err := s.Verify(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

func TestOpenRefuses(t *testing.T) {
	write := func(name, content string) func(string) error {
		return func(dir string) error { return os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600) }
	}
	del := func(name string) func(string) error {
		return func(dir string) error { return os.Remove(filepath.Join(dir, name)) }
	}
	// instead removes the file and makes another thing of its name.
	instead := func(name string, put func(path string) error) func(string) error {
		return func(dir string) error {
			return errors.Join(os.Remove(filepath.Join(dir, name)), put(filepath.Join(dir, name)))
		}
	}
	link := func(path string) error { return os.Symlink("/dev/zero", path) }
	pipe := func(path string) error { return unix.Mkfifo(path, 0o600) }
	mkdir := func(path string) error { return os.Mkdir(path, 0o700) }
	for _, tc := range []struct {
		name string
		edit func(dir string) error
		want error
		text string
	}{
		{"no manifest", del(ManifestName), ErrNoManifest, ""},
		{"manifest is a link", instead(ManifestName, link), unix.ELOOP, ManifestName},
		{"manifest is a pipe", instead(ManifestName, pipe), nil, "no regular file"},
		{"manifest changed", write(ManifestName, "{}"), ErrCorrupt, ManifestName},
		{"newer", write(ManifestName, string(envelope(`{"version":7}`))), ErrNewerVersion, ManifestName},
		{"missing", del("core-1.img"), ErrCorrupt, "core-1.img is missing"},
		{"short", write("core-1.img", "regist"), ErrCorrupt, "6 bytes"},
		{"long", write("core-1.img", "registers!"), ErrCorrupt, "10 bytes"},
		{"a link", instead("core-1.img", link), ErrCorrupt, "no regular file"},
		{"a pipe", instead("core-1.img", pipe), ErrCorrupt, "no regular file"},
		{"a directory", instead("core-1.img", mkdir), ErrCorrupt, "no regular file"},
		{"image too many", write("pages-2.img", "x"), ErrCorrupt, "pages-2.img is not in the manifest"},
		{"data file too many", write("hetgpu-more", "x"), ErrCorrupt, "hetgpu-more"},
		{"parent", func(dir string) error { return os.Symlink("..", filepath.Join(dir, "parent")) }, ErrCorrupt, "parent"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := sealed(t)
			if err := tc.edit(dir); err != nil {
				t.Fatal(err)
			}
			s, err := Open(dir)
			if err == nil || (tc.want != nil && !errors.Is(err, tc.want)) || !strings.Contains(err.Error(), tc.text) || s != nil {
				t.Fatalf("Open = %v, %v; want %v with %q", s, err, tc.want, tc.text)
			}
			for _, other := range []error{ErrNoManifest, ErrCorrupt, ErrNewerVersion} {
				if !errors.Is(tc.want, other) && errors.Is(err, other) {
					t.Fatalf("%v is also %v", err, other)
				}
			}
		})
	}
	if _, err := Open(filepath.Join(t.TempDir(), "missing")); err == nil || errors.Is(err, ErrNoManifest) {
		t.Errorf("Open of a missing directory: %v", err)
	}
}

// A file that becomes a link after Open is not followed either.
func TestVerifyFollowsNoLink(t *testing.T) {
	dir := sealed(t)
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "core-1.img")
	if err := errors.Join(os.Rename(path, path+".log"), os.Symlink("core-1.img.log", path)); err != nil {
		t.Fatal(err)
	}
	if err := s.Verify(t.Context(), nil); !errors.Is(err, unix.ELOOP) {
		t.Fatalf("Verify: %v", err)
	}
}

func TestIncremental(t *testing.T) {
	dir := t.TempDir()
	m := example()
	m.Files, m.Options.Incremental = nil, true
	if err := Write(t.Context(), dir, m); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("Open without the parent: %v", err)
	}
	if err := os.Symlink("../before", filepath.Join(dir, "parent")); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); err != nil {
		t.Fatal(err)
	}
}

// A stream gives the same digests as the file.
func TestReadFileAndCompare(t *testing.T) {
	dir := sealed(t)
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]File{}
	for _, want := range s.Manifest.Files {
		r, err := os.Open(filepath.Join(dir, want.Name))
		if err != nil {
			t.Fatal(err)
		}
		found[want.Name], err = ReadFile(t.Context(), want.Name, r)
		r.Close()
		if err != nil {
			t.Fatal(err)
		}
	}
	list := func() []File { return slices.Collect(maps.Values(found)) }
	if err := s.Manifest.Compare(list()); err != nil {
		t.Fatal(err)
	}
	changed := found["pages-1.img"]
	changed.Digests = slices.Clone(changed.Digests)
	changed.Digests[1] = zeros
	found["pages-1.img"] = changed
	found["core-1.img"] = File{Name: "core-1.img"}
	found["more.img"] = File{Name: "more.img"}
	delete(found, "empty.img")
	err = s.Manifest.Compare(append(list(), File{Name: "more.img"}))
	if !errors.Is(err, ErrCorrupt) {
		t.Fatal(err)
	}
	for _, want := range []string{"pages-1.img: chunk 1", "core-1.img has 0 bytes", "more.img is not in", "more.img is there twice", "empty.img is missing"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
	if n := strings.Count(err.Error(), "\n"); n != 4 {
		t.Errorf("%d differences in %v", n+1, err)
	}
	if _, err := ReadFile(t.Context(), "../x.img", strings.NewReader("")); err == nil {
		t.Error("ReadFile took a path")
	}
}

func TestFreeSpace(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Join(dir, "not", "there", "yet")} {
		n, err := FreeSpace(d)
		if err != nil || n == 0 || n > 1<<60 {
			t.Errorf("FreeSpace(%s) = %d, %v", d, n, err)
		}
	}
	put(t, dir, "file", "")
	if _, err := FreeSpace(filepath.Join(dir, "file", "below")); err == nil {
		t.Error("FreeSpace below a file succeeded")
	}
}

func TestRemove(t *testing.T) {
	outside := t.TempDir()
	put(t, outside, "precious", "x")
	dir := t.TempDir()
	put(t, dir, "old.img", "old")
	if err := os.Symlink(outside, filepath.Join(dir, "old-link")); err != nil {
		t.Fatal(err)
	}
	before, err := List(dir)
	if err != nil {
		t.Fatal(err)
	}
	if before.Empty() {
		t.Error("the directory is not empty")
	}
	put(t, dir, "new.img", "new")
	put(t, dir, "old.img", "overwritten")
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, link := range []string{"parent", "sub/link"} {
		if err := os.Symlink(outside, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // the second finds nothing to do
		if err := Remove(before); err != nil {
			t.Fatal(err)
		}
		if got, want := namesIn(t, dir), []string{"old-link", "old.img"}; !slices.Equal(got, want) {
			t.Fatalf("left %v, want %v", got, want)
		}
		if got := namesIn(t, outside); !slices.Equal(got, []string{"precious"}) {
			t.Fatalf("what the link points to holds %v", got)
		}
	}
}

func TestRemoveWhatWasMissing(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "a", "b")
	before, err := List(dir)
	if err != nil {
		t.Fatal(err)
	}
	if !before.Empty() {
		t.Error("a missing directory is not empty")
	}
	if err := Remove(before); err != nil {
		t.Fatalf("nothing had been made yet: %v", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	put(t, dir, "core-1.img", "x")
	put(t, filepath.Join(top, "a"), "somebody-else", "x")
	if err := Remove(before); err != nil {
		t.Fatal(err)
	}
	if got := namesIn(t, filepath.Join(top, "a")); !slices.Equal(got, []string{"somebody-else"}) {
		t.Fatalf("left %v", got)
	}
	if err := os.Remove(filepath.Join(top, "a", "somebody-else")); err != nil {
		t.Fatal(err)
	}
	if err := Remove(before); err != nil {
		t.Fatal(err)
	}
	if got := namesIn(t, top); len(got) > 0 {
		t.Fatalf("left %v", got)
	}
}

func TestReadSmall(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "core-1.img"), []byte("12345"), 0o600); err != nil {
		t.Fatal(err)
	}
	if data, err := ReadSmall(dir, "core-1.img", 5); err != nil || string(data) != "12345" {
		t.Errorf("%q, %v", data, err)
	}
	if err := os.Symlink("core-1.img", filepath.Join(dir, "core-2.img")); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"core-1.img": "more than 4 bytes", "core-2.img": "too many levels", "core-3.img": "no such file", ".": "no regular file"} {
		if _, err := ReadSmall(dir, name, 4); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v, want %q", name, err, text)
		}
	}
}
