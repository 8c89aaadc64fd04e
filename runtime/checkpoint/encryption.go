// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"errors"
	"fmt"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/memfile"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/snapshot"
)

// Encryption says what becomes of device memory that leaves the devices. Who
// moves it encrypts it; here it is seen to that all of it is.
type Encryption struct {
	// KeyFile has the key of the files with device memory; "" for no encryption.
	KeyFile string
	// AllowPlain lets device memory be saved too that goes through the processes'
	// own memory, which CRIU writes as it is.
	AllowPlain bool
}

// checkEncryption finds the reasons why device memory would not be encrypted as
// it has to be, before anything is changed.
func (s *saving) checkEncryption() (err error) {
	if len(s.procs) == 0 {
		return nil
	}
	if s.Encryption.KeyFile != "" {
		if s.key, err = memfile.ReadKey(s.Encryption.KeyFile); err != nil {
			return err
		}
	}
	return errors.Join(s.refusePlain(), s.checkParentKey())
}

// refusePlain fails if device memory would be among that of processes.
func (s *saving) refusePlain() error {
	if s.key == nil || s.Encryption.AllowPlain {
		return nil
	}
	var reasons []error
	for _, p := range s.procs {
		if p.Split {
			continue
		}
		why := ""
		if p.Reason != "" {
			why = " (" + p.Reason + ")"
		}
		reasons = append(reasons, fmt.Errorf("process %d: %w: the driver would put its device memory into the process%s, and CRIU writes that as it is; use the split engine, or set encryption.allow_plain in the configuration", p.PID, ErrPlain, why))
	}
	return errors.Join(reasons...)
}

// checkParentKey fails if what is left in the snapshot before is encrypted
// otherwise.
func (s *saving) checkParentKey() error {
	dir := s.parent()
	if dir == "" {
		return nil
	}
	m, err := snapshot.ReadManifest(dir)
	if err != nil {
		return fmt.Errorf("the snapshot before: %w", err)
	}
	was, is := m.KeyID(), ""
	if s.key != nil {
		is = s.key.ID()
	}
	if was != is {
		return fmt.Errorf("%w: the device memory of %s is %s, and this one's is to be %s: make a snapshot that is complete", ErrParent, dir, encryption(was), encryption(is))
	}
	return nil
}

func encryption(key string) string {
	if key == "" {
		return "not encrypted"
	}
	return "encrypted with the key " + key
}

// encrypted fails if what was saved is not encrypted with the key that was read
// before.
func (s *saving) encrypted(stored gpuplugin.Stored) error {
	want := ""
	if s.key != nil {
		want = s.key.ID()
	}
	if stored.KeyID != want {
		return fmt.Errorf("%w: it is %s, and was to be %s", ErrPlain, encryption(stored.KeyID), encryption(want))
	}
	return nil
}

// unlock reads the key of a snapshot whose device memory is encrypted.
func (t Target) unlock(s *snapshot.Snapshot) (err error) {
	if id := s.Manifest.KeyID(); id != "" {
		s.Key, err = memfile.KeyFor(id, t.KeyFile)
	}
	return err
}
