// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package memfile

import (
	"bytes"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/hetgpu/containerd-shim-hetgpu/internal/lazyregexp"
)

var (
	// ErrKey means that device memory is encrypted, and not with the key that is
	// at hand.
	ErrKey = errors.New("device memory of the snapshot is encrypted")
	// ErrKeyFile means that a key file can't be used.
	ErrKeyFile = errors.New("key file of device memory")
)

// KeySize is the length of a key in bytes.
const KeySize = 32

// keyIDSize is the length of what names a key, in bytes.
const keyIDSize = 8

// Key is the secret from which the keys of all files are derived. It prints as
// its name.
type Key struct {
	secret []byte
	id     string
	// file is where it was read.
	file string
}

// NewKey returns the key of [KeySize] random bytes.
func NewKey(secret []byte) (*Key, error) {
	if len(secret) != KeySize {
		return nil, fmt.Errorf("%w: a key of %d bytes, and not %d", ErrKeyFile, len(secret), KeySize)
	}
	if bytes.Count(secret, secret[:1]) == KeySize {
		return nil, fmt.Errorf("%w: all bytes of the key are the same: it is not random", ErrKeyFile)
	}
	k := &Key{secret: bytes.Clone(secret)}
	id, err := k.derive(nil, "key id", keyIDSize)
	k.id = hex.EncodeToString(id)
	return k, err
}

// ReadKey reads a key file: a regular file that is root's, or the caller's, and
// that nobody else may read or write, with 32 bytes, or with 64 hexadecimal
// digits and perhaps a newline.
func ReadKey(name string) (*Key, error) {
	k, err := readKey(name)
	if err != nil && !errors.Is(err, ErrKeyFile) {
		return nil, fmt.Errorf("%w: %w", ErrKeyFile, err)
	}
	return k, err
}

func readKey(name string) (*Key, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ELOOP) {
		err = fmt.Errorf("%s is a link", name)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	mode := os.FileMode(st.Mode & 0o777)
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return nil, fmt.Errorf("%s is no regular file", name)
	case st.Uid != 0 && int(st.Uid) != os.Geteuid():
		return nil, fmt.Errorf("%s belongs to user %d, and not to root (chown root %s)", name, st.Uid, name)
	case mode&0o077 != 0:
		return nil, fmt.Errorf("%s has the mode %#o: others than its owner may use it (chmod 0600 %s), and may have read the key", name, mode, name)
	}
	const most = 2*KeySize + 1 // and one more, to see that there is more
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if len(data) != KeySize {
		digits := bytes.TrimSuffix(data, []byte("\n"))
		if len(digits) != 2*KeySize {
			return nil, fmt.Errorf("%s has neither %d bytes nor %d hexadecimal digits", name, KeySize, 2*KeySize)
		}
		data = make([]byte, KeySize)
		if _, err := hex.Decode(data, digits); err != nil {
			return nil, fmt.Errorf("%s has characters that are no hexadecimal digits", name) // and does not say which
		}
	}
	k, err := NewKey(data)
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, name)
	}
	k.file = name
	return k, nil
}

// KeyFor reads the key with which device memory is encrypted. It fails with
// [ErrKey] if there is no key file (an empty name), or if it has another key.
func KeyFor(id, file string) (*Key, error) {
	if file == "" {
		return nil, fmt.Errorf("%w: with the key %s, and this host has no key file (encryption.key_file in its configuration)", ErrKey, id)
	}
	k, err := ReadKey(file)
	if err == nil {
		err = k.is(id)
	}
	if err != nil {
		return nil, err
	}
	return k, nil
}

// is fails if the key has another name, or there is none.
func (k *Key) is(id string) error {
	if k == nil {
		return fmt.Errorf("%w: with the key %s, which is not at hand", ErrKey, id)
	}
	if k.id != id {
		return fmt.Errorf("%w: with the key %s, and %s has the key %s", ErrKey, id, k.place(), k.id)
	}
	return nil
}

func (k *Key) place() string {
	if k.file == "" {
		return "this host"
	}
	return k.file
}

// ID names the key: 16 hexadecimal digits that tell nothing else of it. It is the
// same in all snapshots.
func (k *Key) ID() string { return k.id }

// String implements fmt.Stringer.
func (k *Key) String() string { return "key " + k.id }

// GoString implements fmt.GoStringer.
func (k *Key) GoString() string { return k.String() }

var keyID = lazyregexp.New(`^[0-9a-f]{16}$`)

// IsKeyID tells whether a text is spelled as the name of a key.
func IsKeyID(id string) bool { return keyID.MatchString(id) }

// derive makes a key for one use, by HKDF with SHA-256 (RFC 5869).
func (k *Key) derive(salt []byte, use string, size int) ([]byte, error) {
	out, err := hkdf.Key(sha256.New, k.secret, salt, "hetgpu device memory 1: "+use, size)
	if err != nil {
		return nil, fmt.Errorf("derive a key: %w", err)
	}
	return out, nil
}
