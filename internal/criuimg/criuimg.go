// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Package criuimg reads CRIU's images as far as hetGPU needs to. The framing is not
// that of CRIU's own library, which reads files only and trusts every length in
// them; and of the messages it reads some fields, without the library's types, which
// are registered whenever a program starts that has them, as the shim would.
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

	"github.com/checkpoint-restore/go-criu/v8/magic"
	"google.golang.org/protobuf/encoding/protowire"
)

const (
	// mountsPattern are the images of mount namespaces (CRIU 4.2,
	// criu/image-desc.c, MNTS).
	mountsPattern = "mountpoints-*.img"
	// maxImage is the largest image that is decoded: the kernel allows 100,000 mounts
	// (fs.mount-max), and a container has some dozens; of open files it has some
	// thousands, with 50 bytes or so for each.
	maxImage = 16 << 20
	// extKey is the field of a mount with the name that a restore gives it by
	// (CRIU 4.2, images/mnt.proto, mnt_entry.ext_key).
	extKey protowire.Number = 18
)

// EachMessage calls do for each message of an image: two numbers tell that it
// is one and of which kind ("CORE"), and each message follows its length.
func EachMessage(data []byte, kind string, do func([]byte) error) error {
	const word = 4
	numbers := magic.LoadMagic().ByName // what CRIU's images begin with
	head := binary.LittleEndian.AppendUint32(nil, uint32(numbers["IMG_COMMON"]))
	head = binary.LittleEndian.AppendUint32(head, uint32(numbers[kind]))
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
	err = eachMount(dir, func(message []byte) error {
		key, err := stringField(message, extKey)
		if key != "" {
			keys = append(keys, key)
		}
		return err
	})
	return keys, err
}

// eachMount calls do for each mount of a snapshot.
func eachMount(dir string, do func([]byte) error) error {
	names, err := filepath.Glob(filepath.Join(dir, mountsPattern))
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := eachOf(name, "MNTS", do); err != nil {
			return err
		}
	}
	return nil
}

// eachOf calls do for each message of an image, which may be absent.
func eachOf(name, kind string, do func([]byte) error) error {
	data, err := read(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = EachMessage(data, kind, do)
	}
	if err != nil {
		return fmt.Errorf("read CRIU's image %s: %w", name, err)
	}
	return nil
}

// stringField returns a field of a message, "" if it has none.
func stringField(message []byte, number protowire.Number) (value string, err error) {
	err = eachField(message, number, protowire.BytesType, func(field []byte) {
		value, _ = protowire.ConsumeString(field)
	})
	return value, err
}

// numberField returns a field of a message, 0 if it has none.
func numberField(message []byte, number protowire.Number) (value uint64, err error) {
	err = eachField(message, number, protowire.VarintType, func(field []byte) {
		value, _ = protowire.ConsumeVarint(field)
	})
	return value, err
}

// eachField calls do for what a message has as a field, of which the last counts.
func eachField(message []byte, number protowire.Number, kind protowire.Type, do func([]byte)) error {
	for len(message) > 0 {
		n, k, size := protowire.ConsumeTag(message)
		if size < 0 {
			return protowire.ParseError(size)
		}
		message = message[size:]
		if size = protowire.ConsumeFieldValue(n, k, message); size < 0 {
			return protowire.ParseError(size)
		}
		if n == number && k == kind {
			do(message[:size])
		}
		message = message[size:]
	}
	return nil
}

// read reads a regular file of limited size.
func read(name string) ([]byte, error) {
	info, err := os.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxImage {
		return nil, fmt.Errorf("it is no file of at most %d bytes", maxImage)
	}
	return os.ReadFile(name)
}
