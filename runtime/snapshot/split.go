// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hetgpu/containerd-shim-hetgpu/internal/lazyregexp"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/memfile"
)

// version is the oldest format that can say what the manifest says.
func (m *Manifest) version() int {
	if m.Options.WholePages {
		return 6
	}
	if m.Memory != nil && m.Memory.KeyID != "" {
		return 5
	}
	if m.Memory != nil && (m.Memory.KeptBytes != 0 || m.Memory.Keeper != nil) {
		return 4
	}
	if m.Engine != EngineSplit && m.Memory != nil || slices.ContainsFunc(m.Processes, func(p Process) bool { return p.Memory == MemoryStorage }) {
		return 3
	}
	split := m.Engine == EngineSplit || m.EngineReason != "" || m.Library != nil || m.Memory != nil || m.StopSeconds != 0 ||
		slices.ContainsFunc(m.Processes, func(p Process) bool { return p.Memory != "" }) ||
		slices.ContainsFunc(m.Files, func(f File) bool { return f.CoveredBy != "" })
	if split {
		return 2
	}
	return 1
}

// Kept tells where the device memory is that was left on the devices; nil if
// there is none.
func (m *Manifest) Kept() *Keeper {
	if m.Memory == nil {
		return nil
	}
	return m.Memory.Keeper
}

// covered tells of the files whose digests are in another of the snapshot.
func covered(name string) bool { return memfile.IsName(name) && name != memfile.IndexName }

// apart is the word for memory in files with the manifest's engine.
func (m *Manifest) apart() string {
	switch {
	case m.Engine == EngineSplit:
		return MemorySplit
	case m.Engine == EngineDriver && m.Memory != nil:
		return MemoryStorage
	}
	return ""
}

// Apart tells whether the process's device memory is in files of the snapshot.
func (p Process) Apart() bool { return p.Memory == MemorySplit || p.Memory == MemoryStorage }

// validateSplit checks what versions 2 to 6 brought.
func (m *Manifest) validateSplit() error {
	if m.Options.WholePages && !m.Options.Incremental {
		return errors.New("no memory was left in a snapshot before, and it says which")
	}
	if m.Memory != nil && m.Engine != EngineSplit && m.Engine != EngineDriver {
		return fmt.Errorf("engine %q, and device memory in files", m.Engine)
	}
	if m.version() > m.Version {
		return fmt.Errorf("version %d has fields of version %d", m.Version, m.version())
	}
	if m.Library != nil && !isBuildID(m.Library.BuildID) {
		return fmt.Errorf("library's build id %q", m.Library.BuildID)
	}
	apart := m.apart()
	for i, p := range m.Processes {
		switch {
		case apart == "" && p.Memory == "", apart != "" && (p.Memory == apart || p.Memory == MemoryDriver):
		default:
			return fmt.Errorf("process %d: memory %q with engine %q", i, p.Memory, m.Engine)
		}
	}
	if m.Engine == EngineSplit && (m.Split() == 0 || m.Memory == nil || m.Library == nil) {
		return fmt.Errorf("engine %q, and no process, library or memory that is split", m.Engine)
	}
	if m.Memory != nil && (apart == "" || m.Split() == 0) {
		return fmt.Errorf("engine %q, and device memory in files of no process", m.Engine)
	}
	if m.Kept() != nil && m.Engine != EngineSplit {
		return fmt.Errorf("engine %q, and device memory that is kept", m.Engine)
	}
	if m.Memory != nil {
		if err := m.Memory.validate(); err != nil {
			return err
		}
	}
	return m.validateCovered()
}

func (m *Memory) validate() error {
	rest := m.Bytes
	for _, part := range []uint64{m.ZeroBytes, m.StoredBytes, m.ReusedBytes, m.KeptBytes} {
		if part > rest {
			return fmt.Errorf("device memory of %d bytes has parts of more", m.Bytes)
		}
		rest -= part
	}
	if rest > 0 {
		return fmt.Errorf("%d bytes of device memory are in no part of it", rest)
	}
	if m.KeyID != "" && (!memfile.IsKeyID(m.KeyID) || m.Keeper != nil) {
		return fmt.Errorf("device memory is encrypted with the key %q, keeper %+v", m.KeyID, m.Keeper)
	}
	if m.Keeper == nil && m.KeptBytes == 0 {
		return nil
	}
	if m.Keeper == nil || m.KeptBytes != m.Bytes {
		return fmt.Errorf("%d of %d bytes of device memory are kept, keeper %+v", m.KeptBytes, m.Bytes, m.Keeper)
	}
	return m.Keeper.validate()
}

func (k *Keeper) validate() error {
	if !bootID.MatchString(k.BootID) || !keeperID.MatchString(k.ID) || !isDigest(k.Digest) {
		return fmt.Errorf("keeper %q of boot %q, digest %q", k.ID, k.BootID, k.Digest)
	}
	return nil
}

var (
	bootID   = lazyregexp.New(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
	keeperID = lazyregexp.New(`^[0-9a-f]{32}$`)
)

// validateCovered checks that the files of device memory are there if there is
// device memory, and that these and no others are covered by its index.
func (m *Manifest) validateCovered() error {
	index := false
	for _, f := range m.Files {
		want := ""
		if covered(f.Name) {
			want = memfile.IndexName
		}
		if f.CoveredBy != want {
			return fmt.Errorf("file %q: covered by %q, want %q", f.Name, f.CoveredBy, want)
		}
		index = index || f.Name == memfile.IndexName
		if memfile.IsName(f.Name) && (m.Memory == nil || m.Kept() != nil) {
			return fmt.Errorf("file %q, and no device memory in files", f.Name)
		}
	}
	if m.Memory != nil && m.Kept() == nil && !index {
		return fmt.Errorf("device memory, and no file %q", memfile.IndexName)
	}
	return nil
}

// Text makes a text fit for a manifest.
func Text(s string) string {
	if len(s) > maxText {
		const cut = "..."
		s = s[:maxText-len(cut)] + cut
	}
	return printable(s)
}

func isBuildID(s string) bool {
	_, err := hex.DecodeString(s)
	return err == nil && s != "" && len(s) <= 2*64 && strings.ToLower(s) == s
}

// Split counts the processes whose device memory is apart from them, in files of
// the snapshot or with its keeper.
func (m *Manifest) Split() int {
	n := 0
	for _, p := range m.Processes {
		if p.Apart() {
			n++
		}
	}
	return n
}

// ReadMemory reads the index of the snapshot's device memory and compares it
// with the manifest; nil if there is none in files. The index is what was written if
// [Snapshot.Verify] says so of its file; with [Snapshot.Key] that is proved here.
func (s *Snapshot) ReadMemory() (*memfile.Index, error) {
	if s.Manifest.Memory == nil || s.Manifest.Kept() != nil {
		return nil, nil
	}
	x, err := memfile.ReadIndex(s.Dir)
	if err == nil {
		err = s.Manifest.compareMemory(x)
	}
	if err == nil && s.Key != nil {
		err = x.Unlock(s.Key)
	}
	if err != nil {
		return nil, damaged(err)
	}
	return x, nil
}

// KeyID names the key with which the snapshot's device memory is encrypted; "" if
// it is not.
func (m *Manifest) KeyID() string {
	if m.Memory == nil {
		return ""
	}
	return m.Memory.KeyID
}

// compareMemory checks that manifest and index are of the same snapshot.
func (m *Manifest) compareMemory(x *memfile.Index) error {
	if n := m.Split(); len(x.Processes) != n {
		return fmt.Errorf("%w: the index of device memory is of %d processes, and the manifest's are %d", ErrCorrupt, len(x.Processes), n)
	}
	is := x.Sizes()
	if was := *m.Memory; was != (Memory{Bytes: is.Memory, ZeroBytes: is.Zero, StoredBytes: is.Stored, ReusedBytes: is.Reused, KeyID: x.KeyID}) {
		return fmt.Errorf("%w: the index of device memory is of %+v bytes (key %q), and the manifest says %+v", ErrCorrupt, is, x.KeyID, was)
	}
	listed := map[string]int64{}
	for _, f := range m.Files {
		if f.CoveredBy != "" {
			listed[f.Name] = f.Size
		}
	}
	for _, f := range x.Files {
		if f.Generation > 0 {
			continue
		}
		if size, ok := listed[f.Name]; !ok || size != int64(f.Size) {
			return fmt.Errorf("%w: the index of device memory has %s with %d bytes, and the manifest has not", ErrCorrupt, f.Name, f.Size)
		}
		delete(listed, f.Name)
	}
	if len(listed) > 0 {
		return fmt.Errorf("%w: the index of device memory does not cover %d of the files", ErrCorrupt, len(listed))
	}
	return nil
}

// verifyMemory reads all device memory and compares it with its digests.
func (s *Snapshot) verifyMemory(ctx context.Context) error {
	x, err := s.ReadMemory()
	if err != nil || x == nil {
		return err
	}
	_, err = memfile.Verify(ctx, s.Dir, s.Key)
	return damaged(err)
}

// damaged makes memfile's errors those of this package.
func damaged(err error) error {
	switch {
	case errors.Is(err, memfile.ErrNewerVersion):
		return fmt.Errorf("%w: %w", ErrNewerVersion, err)
	case errors.Is(err, memfile.ErrDamaged):
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return err
}
