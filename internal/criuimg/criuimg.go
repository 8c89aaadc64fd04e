// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Package criuimg reads CRIU's images as far as hetGPU needs to. The formats of
// their messages are those of CRIU's own library, and the framing is not: that
// reads files only, and trusts every length in them.
package criuimg

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/checkpoint-restore/go-criu/v8/crit/images/mnt"
	"github.com/checkpoint-restore/go-criu/v8/magic"
	"google.golang.org/protobuf/proto"
)

const (
	// mountsPattern are the images of mount namespaces (CRIU 4.2,
	// criu/image-desc.c, MNTS).
	mountsPattern = "mountpoints-*.img"
	// maxMounts is the largest of them that is decoded: the kernel allows 100,000
	// mounts (fs.mount-max), and a container has some dozens.
	maxMounts = 4 << 20
)

// magics are the numbers that CRIU's images begin with.
var magics = sync.OnceValue(magic.LoadMagic)

// EachMessage calls do for each message of an image: two numbers tell that it
// is one and of which kind ("CORE"), and each message follows its length.
func EachMessage(data []byte, kind string, do func([]byte) error) error {
	const word = 4
	head := binary.LittleEndian.AppendUint32(nil, uint32(magics().ByName["IMG_COMMON"]))
	head = binary.LittleEndian.AppendUint32(head, uint32(magics().ByName[kind]))
	rest, ok := bytes.CutPrefix(data, head)
	if !ok {
		return fmt.Errorf("it is no image of the kind %s", kind)
	}
	for len(rest) > 0 {
		if len(rest) < word {
			return io.ErrUnexpectedEOF
		}
		size := uint64(binary.LittleEndian.Uint32(rest))
		if rest = rest[word:]; size > uint64(len(rest)) {
			return io.ErrUnexpectedEOF
		}
		if err := do(rest[:size]); err != nil {
			return err
		}
		rest = rest[size:]
	}
	return nil
}

// ExternalMounts are the names of the mounts of a snapshot that a restore must be
// given: runc names them by where they are in the container. An absent image
// names none.
func ExternalMounts(dir string) (keys []string, err error) {
	names, err := filepath.Glob(filepath.Join(dir, mountsPattern))
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		data, err := read(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = EachMessage(data, "MNTS", func(message []byte) error {
				var e mnt.MntEntry
				if err := proto.Unmarshal(message, &e); err != nil {
					return err
				}
				if e.GetExtKey() != "" {
					keys = append(keys, e.GetExtKey())
				}
				return nil
			})
		}
		if err != nil {
			return nil, fmt.Errorf("read CRIU's image %s: %w", name, err)
		}
	}
	return keys, nil
}

// read reads a regular file of limited size.
func read(name string) ([]byte, error) {
	info, err := os.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxMounts {
		return nil, fmt.Errorf("it is no file of at most %d bytes", maxMounts)
	}
	return os.ReadFile(name)
}
