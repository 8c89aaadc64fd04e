// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package memfile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// WriteIndex writes the index to a snapshot's directory, on disk, and is the last
// step of a save: it must not be there before. The key is that of [Encode]. It
// returns the file's size.
func WriteIndex(dir string, x *Index, key *Key) (size int64, err error) {
	data, err := Encode(x, key)
	if err != nil {
		return 0, err
	}
	name := filepath.Join(dir, IndexName)
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return 0, fmt.Errorf("write the index of device memory: %w", err)
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		_ = os.Remove(name)
		return 0, fmt.Errorf("write the index of device memory: %w", err)
	}
	return int64(len(data)), nil
}

// ReadIndex reads the index of a snapshot's directory.
func ReadIndex(dir string) (*Index, error) {
	f, size, err := OpenFile(dir, IndexName)
	if err != nil {
		return nil, fmt.Errorf("read the index of device memory: %w", err)
	}
	defer f.Close()
	if size > MaxIndexSize {
		return nil, fmt.Errorf("%w: %s: more than %d bytes", ErrDamaged, IndexName, MaxIndexSize)
	}
	data := make([]byte, size)
	if _, err := io.ReadFull(f, data); err != nil {
		return nil, fmt.Errorf("read the index of device memory: %w", err)
	}
	return Decode(data)
}

// OpenFile opens a file of a snapshot by its path in there, and nothing but a
// regular file: the last part may be no link, and no pipe is waited for.
func OpenFile(dir, path string) (*os.File, int64, error) {
	f, err := os.OpenFile(filepath.Join(dir, filepath.FromSlash(path)), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file (%s)", f.Name(), info.Mode().Type())
	}
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, info.Size(), nil
}

// OpenData opens the files of the index, in its order, and checks their sizes.
// The caller closes them.
func (x *Index) OpenData(dir string) ([]*os.File, error) {
	files := make([]*os.File, 0, len(x.Files))
	for _, want := range x.Files {
		f, size, err := OpenFile(dir, want.Path())
		if err == nil {
			files = append(files, f)
			if uint64(size) != want.Size {
				err = fmt.Errorf("%s has %d bytes, and the index says %d", want.Path(), size, want.Size)
			}
		}
		if err != nil {
			CloseAll(files)
			return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
		}
	}
	return files, nil
}

// CloseAll closes files that were only read.
func CloseAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// Verify reads all of the memory in a snapshot's directory and compares it with
// the digests: what is encrypted with the sums of the files, and with a key (nil is
// none) with tags and digests too. Its error is [ErrDamaged],
// [ErrNewerVersion], [ErrKey], or that of a read.
func Verify(ctx context.Context, dir string, key *Key) (*Index, error) {
	x, err := ReadIndex(dir)
	if err == nil && key != nil {
		err = x.Unlock(key)
	}
	if err != nil {
		return nil, err
	}
	files, err := x.OpenData(dir)
	if err != nil {
		return nil, err
	}
	defer CloseAll(files)
	readers := make([]io.ReaderAt, len(files))
	for i, f := range files {
		readers[i] = f
	}
	return x, x.Verify(ctx, readers, key)
}

// Verify compares the contents of the files, which are in the index's order,
// with the digests. With a key the index is unlocked.
func (x *Index) Verify(ctx context.Context, files []io.ReaderAt, key *Key) error {
	if len(files) != len(x.Files) {
		return fmt.Errorf("%d files are to be verified, and the index has %d", len(files), len(x.Files))
	}
	v := &verifier{index: x, files: files}
	if x.Encrypted() && key != nil {
		var err error
		if v.ciphers, err = key.Ciphers(x.Files); err != nil {
			return err
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for p := range x.Processes {
		for c := range x.Processes[p].Chunks {
			chunk := &x.Processes[p].Chunks[c]
			for first := 0; first < len(chunk.Blocks); first += verifyBlocks {
				g.Go(func() error {
					return v.verify(ctx, p, chunk, first, min(first+verifyBlocks, len(chunk.Blocks)))
				})
			}
		}
	}
	return g.Wait()
}

// verifyBlocks is how many blocks are one piece of work.
const verifyBlocks = 16

type verifier struct {
	index *Index
	files []io.ReaderAt
	// ciphers are the files', nil if they are not to be decrypted.
	ciphers []*Cipher
}

func (v *verifier) verify(ctx context.Context, process int, c *Chunk, first, end int) error {
	x := v.index
	var buf []byte
	for i := first; i < end; i++ {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		b, n := c.Blocks[i], c.BlockLen(i)
		if b.Zero() && x.Encrypted() && v.ciphers == nil {
			continue
		}
		if b.Zero() {
			if zero := zeroDigest(n); b.Digest != zero {
				return x.Damage(process, c, i, zero)
			}
			continue
		}
		if buf == nil {
			buf = make([]byte, BlockSize+TagSize)
		}
		if _, err := v.files[b.File-1].ReadAt(buf[:n], int64(b.Offset)); err != nil {
			return fmt.Errorf("read %s at %d: %w", x.Files[b.File-1].Path(), b.Offset, err)
		}
		if x.Encrypted() {
			if got := Sum(buf[:n]); got != b.Sum {
				return fmt.Errorf("%w: %s: it has the sum %08x, and the index says %08x", ErrDamaged, x.where(process, c, i), got, b.Sum)
			}
			if v.ciphers == nil {
				continue
			}
			if !v.ciphers[b.File-1].Open(buf[:n], b.Offset, b.Tag) {
				return x.Forged(process, c, i)
			}
		}
		if got, _ := DigestOf(buf[:n]); got != b.Digest {
			return x.Damage(process, c, i, got)
		}
	}
	return nil
}

// Damage says that a block has another digest than the index has.
func (x *Index) Damage(process int, c *Chunk, block int, got Digest) error {
	return fmt.Errorf("%w: %s: it has the digest %s, and the index says %s", ErrDamaged, x.where(process, c, block), got, c.Blocks[block].Digest)
}

// Forged says that a block is not what was encrypted at its place.
func (x *Index) Forged(process int, c *Chunk, block int) error {
	return fmt.Errorf("%w: %s: it is not what was encrypted there with the key %s", ErrDamaged, x.where(process, c, block), x.KeyID)
}

func (x *Index) where(process int, c *Chunk, block int) string {
	b := c.Blocks[block]
	where := "zeros"
	if !b.Zero() {
		where = fmt.Sprintf("%s at %d", x.Files[b.File-1].Path(), b.Offset)
	}
	return fmt.Sprintf("process %d, chunk %d, block %d (%s)", process, c.ID, block, where)
}
