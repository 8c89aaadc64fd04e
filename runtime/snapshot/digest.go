// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// bufSize is what a digest reads at once: small enough for the processor's
// cache, and for a context to be honored soon.
const bufSize = 256 << 10

// filesAtOnce bounds the open files. Most of a snapshot's files are tiny, and
// what takes long about them is fsync, which waits and needs no processor.
const filesAtOnce = 16

var buffers = sync.Pool{New: func() any { b := make([]byte, bufSize); return &b }}

// slots limits what is done at once, over all files of one operation.
type slots chan struct{}

func (s slots) acquire(ctx context.Context) error {
	select {
	case s <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s slots) release() { <-s }

// openRegular opens a file of the snapshot, and nothing but a regular file:
// no link is followed, and no pipe waited for.
func openRegular(dir, name string) (*os.File, int64, error) {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = notRegular(filepath.Join(dir, name), info.Mode())
	}
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, info.Size(), nil
}

func notRegular(path string, mode fs.FileMode) error {
	return fmt.Errorf("%s is no regular file (%s)", path, mode.Type())
}

// chunkLen is the length of chunk i of a file.
func chunkLen(size int64, i int) int64 { return min(ChunkSize, size-int64(i)*ChunkSize) }

// digestChunk returns the digest of chunk i of a file of that size. It fails
// if the file is shorter.
func digestChunk(ctx context.Context, f io.ReaderAt, size int64, i int) (string, error) {
	h := sha256.New()
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	r := io.NewSectionReader(f, int64(i)*ChunkSize, chunkLen(size, i))
	for {
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		n, err := r.Read(*buf)
		h.Write((*buf)[:n])
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return "", err
		}
	}
	if at, _ := r.Seek(0, io.SeekCurrent); at != r.Size() {
		return "", fmt.Errorf("ends %d bytes before its size of %d", r.Size()-at, size)
	}
	return sum(h), nil
}

func sum(h hash.Hash) string { return digestPrefix + hex.EncodeToString(h.Sum(nil)) }

// eachChunk calls do for each chunk of the file for which want is true, in
// parallel as the slots allow; the first error ends it.
func eachChunk(ctx context.Context, f *os.File, size int64, s slots, want func(i int) bool, do func(i int, digest string) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(cap(s))
	for i := range int(chunks(size)) {
		if !want(i) {
			continue
		}
		g.Go(func() error {
			if err := s.acquire(ctx); err != nil {
				return err
			}
			defer s.release()
			// Chunks are read side by side, which defeats the kernel's own
			// guess at what is read next. It is advice: an error is no harm.
			_ = unix.Fadvise(int(f.Fd()), int64(i)*ChunkSize, chunkLen(size, i), unix.FADV_WILLNEED)
			digest, err := digestChunk(ctx, f, size, i)
			if err != nil {
				return err
			}
			return do(i, digest)
		})
	}
	return g.Wait()
}
