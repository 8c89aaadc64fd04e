// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// await waits until ok, which something else brings about.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	deadline := time.After(30 * time.Second)
	for !ok() {
		select {
		case <-deadline:
			t.Fatalf("no %s within 30 s", what)
		case <-tick.C:
		}
	}
}

// hashed is the number of chunks of a file that have been hashed so far.
func (f *Follower) hashed(name string) int {
	f.mu.Lock()
	g := f.files[name]
	f.mu.Unlock()
	if g == nil {
		return 0
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.digests)
}

// digests computes them another way than the package does.
func digests(t *testing.T, path string) []string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	list := []string{}
	for len(data) > 0 {
		n := min(ChunkSize, len(data))
		list = append(list, digestOf(data[:n]))
		data = data[n:]
	}
	return list
}

func checkSealed(t *testing.T, dir string, files []File) {
	t.Helper()
	for _, f := range files {
		want := digests(t, filepath.Join(dir, f.Name))
		if fmt.Sprint(f.Digests) != fmt.Sprint(want) {
			t.Errorf("%s: digests %v, want %v", f.Name, f.Digests, want)
		}
	}
}

func appendTo(t *testing.T, dir, name string, data []byte) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func random(n int) []byte {
	data := make([]byte, n)
	_, _ = rand.Read(data[:min(n, 1<<20)])
	return data
}

func TestFollowHashesWhileFilesGrow(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "pages-9.img", "from an earlier dump")
	f, err := Follow(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Stop()

	appendTo(t, dir, "pages-1.img", random(ChunkSize))
	appendTo(t, dir, "pages-2.img", random(ChunkSize+settle))
	await(t, "chunk of pages-2", func() bool { return f.hashed("pages-2.img") == 1 })
	if n := f.hashed("pages-1.img"); n != 0 {
		t.Errorf("%d chunks hashed of a file that had not grown past the first", n)
	}
	appendTo(t, dir, "pages-1.img", random(ChunkSize+settle))
	await(t, "chunks of pages-1", func() bool { return f.hashed("pages-1.img") == 2 })
	appendTo(t, dir, "pages-1.img", random(3))
	put(t, dir, "core-1.img", "registers")

	files, err := f.Seal(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != 4 {
		t.Errorf("sealed %v", files)
	}
	checkSealed(t, dir, files)
}

// What was hashed of a file that is not the same any more is not used.
func TestFollowNoticesChanges(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, f *Follower, dir, name string){
		"replaced": func(t *testing.T, _ *Follower, dir, name string) {
			t.Helper()
			appendTo(t, dir, "new", random(ChunkSize+2*settle))
			if err := os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		},
		"cut": func(t *testing.T, _ *Follower, dir, name string) {
			t.Helper()
			put(t, dir, name, "short")
		},
		"cut and written again": func(t *testing.T, f *Follower, dir, name string) {
			t.Helper()
			put(t, dir, name, "")
			f.mu.Lock()
			g := f.files[name]
			f.mu.Unlock()
			await(t, "sight of the cut", func() bool {
				g.mu.Lock()
				defer g.mu.Unlock()
				return g.shrunk
			})
			appendTo(t, dir, name, random(ChunkSize+2*settle))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			f, err := Follow(t.Context(), dir)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Stop()
			appendTo(t, dir, "pages-1.img", random(ChunkSize+settle))
			await(t, "chunk", func() bool { return f.hashed("pages-1.img") == 1 })
			change(t, f, dir, "pages-1.img")
			files, err := f.Seal(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			checkSealed(t, dir, files)
		})
	}
}

// A file of an earlier dump is cut and written again in place. It is not
// followed, so nothing of it was hashed too early.
func TestFollowLeavesOldFilesAlone(t *testing.T) {
	dir := t.TempDir()
	appendTo(t, dir, "pages-1.img", random(ChunkSize+settle))
	f, err := Follow(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Stop()
	// The new file shows that the directory has been looked at.
	appendTo(t, dir, "pages-2.img", random(ChunkSize+settle))
	await(t, "chunk", func() bool { return f.hashed("pages-2.img") == 1 })
	if n := f.hashed("pages-1.img"); n != 0 {
		t.Errorf("%d chunks hashed of a file that was there before", n)
	}
	appendTo(t, dir, "pages-1.img", []byte("more"))
	files, err := f.Seal(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	checkSealed(t, dir, files)
}

// usage counts goroutines and open files.
func usage(t *testing.T) (goroutines, files int) {
	t.Helper()
	return runtime.NumGoroutine(), len(namesIn(t, "/proc/self/fd"))
}

func TestFollowerLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	goroutines, files := usage(t)
	for name, end := range map[string]func(f *Follower, cancel func()){
		"stopped":          func(f *Follower, _ func()) { f.Stop() },
		"stopped twice":    func(f *Follower, _ func()) { f.Stop(); f.Stop() },
		"context canceled": func(f *Follower, cancel func()) { cancel(); f.done.Wait(); f.Stop() },
		"sealed": func(f *Follower, _ func()) {
			if _, err := f.Seal(t.Context()); err != nil {
				t.Error(err)
			}
		},
		"sealed with an ended context": func(f *Follower, _ func()) {
			ctx, cancel := context.WithCancelCause(t.Context())
			cancel(errors.New("the caller gave up"))
			if _, err := f.Seal(ctx); err == nil || !strings.Contains(err.Error(), "the caller gave up") {
				t.Errorf("Seal: %v", err)
			}
		},
	} {
		if err := os.RemoveAll(filepath.Join(dir, "pages-1.img")); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		f, err := Follow(ctx, dir)
		if err != nil {
			t.Fatal(err)
		}
		appendTo(t, dir, "pages-1.img", random(ChunkSize+settle))
		await(t, "chunk", func() bool { return f.hashed("pages-1.img") == 1 })
		end(f, cancel)
		cancel()
		await(t, "end of goroutines after "+name, func() bool {
			g, n := usage(t)
			return g <= goroutines && n <= files
		})
	}
	if got := namesIn(t, dir); len(got) != 1 {
		t.Errorf("the directory holds %v", got)
	}
}

func TestSealRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		edit func(dir string) error
		text string
	}{
		"a link":       {func(dir string) error { return os.Symlink("/dev/zero", filepath.Join(dir, "core-1.img")) }, "core-1.img"},
		"a directory":  {func(dir string) error { return os.Mkdir(filepath.Join(dir, "core-1.img"), 0o700) }, "no regular file"},
		"a name":       {func(dir string) error { return os.WriteFile(filepath.Join(dir, "core\n.img"), nil, 0o600) }, "plain file name"},
		"no directory": {os.Remove, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			f, err := Follow(t.Context(), dir)
			if err != nil {
				t.Fatal(err)
			}
			if err := tc.edit(dir); err != nil {
				t.Fatal(err)
			}
			files, err := f.Seal(t.Context())
			if err == nil || !strings.Contains(err.Error(), tc.text) || files != nil {
				t.Fatalf("Seal = %v, %v; want %q", files, err, tc.text)
			}
		})
	}
}

// The directory may be made after Follow, as runc does.
func TestFollowBeforeTheDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "later")
	f, err := Follow(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Stop()
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	put(t, dir, "core-1.img", "registers")
	files, err := f.Seal(t.Context())
	if err != nil || len(files) != 1 {
		t.Fatalf("Seal = %v, %v", files, err)
	}
}

// BenchmarkDigest is the rate of digests of what is in the page cache.
func BenchmarkDigest(b *testing.B) {
	const size = 8 * ChunkSize
	path := filepath.Join(b.TempDir(), "pages-1.img")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	if _, err := io.Copy(f, bytes.NewReader(random(size))); err != nil {
		b.Fatal(err)
	}
	for workers := 1; workers <= max(1, runtime.NumCPU()); workers *= 2 {
		b.Run(fmt.Sprintf("workers=%d", workers), func(b *testing.B) {
			b.SetBytes(size)
			for b.Loop() {
				err := eachChunk(b.Context(), f, size, make(slots, workers),
					func(int) bool { return true }, func(int, string) error { return nil })
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
