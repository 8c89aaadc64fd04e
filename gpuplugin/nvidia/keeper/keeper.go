// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Package keeper keeps device memory where it is while no process runs that
// uses it: a process of its own holds descriptors of it, and loads no driver.
// A snapshot names its keeper; who restores it gets the descriptors from there.
//
// A keeper is for one snapshot. It belongs to the shim that started it until the
// snapshot is complete (Confirm), then to nobody: it outlives shim, device helper
// and containerd, and ends when the memory was restored (Spend) or is not wanted
// (Drop). Whoever speaks to it is root: the directory is root's, and the peer is
// asked for.
//
// keep.mu guards a keeper's tables and is not held while anything is sent or
// received. The package must not know of containers or snapshots.
package keeper

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/hetcuda"
)

// ErrLent means that somebody else has taken the memory, and not spent it yet.
var ErrLent = errors.New("the device memory is being taken just now")

// Label says for people whose memory it is.
type Label struct {
	// Container is the id of the container that was saved, and Dir the directory
	// of its snapshot.
	Container string `json:"container"`
	Dir       string `json:"dir"`
}

// Piece is one chunk of device memory, as libhetcuda describes it
// ([hetcuda.Chunk]).
type Piece struct {
	// Process counts the processes whose memory it is, from 0.
	Process int    `json:"process"`
	ID      uint64 `json:"id"`
	Address uint64 `json:"address"`
	Size    uint64 `json:"size"`
	// Device is the UUID ("GPU-...").
	Device string `json:"device"`
	Flags  uint32 `json:"flags,omitempty"`
	// Maker is 0, or for memory that another process has made one more than the
	// index of its piece.
	Maker int `json:"maker,omitempty"`
}

// Memory is what a keeper keeps.
type Memory struct {
	Processes int     `json:"processes"`
	Pieces    []Piece `json:"pieces"`
}

// Digest names exactly this memory: all chunks, in their order.
func (m Memory) Digest() (string, error) {
	data, err := json.Marshal(m)
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:]), err
}

// Devices is how many bytes there are on each device. What a process has of
// another counts where it was made.
func (m Memory) Devices() map[string]uint64 {
	bytes := map[string]uint64{}
	for _, p := range m.Pieces {
		if p.Flags&hetcuda.Imported == 0 {
			bytes[p.Device] += p.Size
		}
	}
	return bytes
}

// validate checks what came from the other side.
func (m Memory) validate() error {
	last := 0
	for i, p := range m.Pieces {
		if p.Process < last || p.Process >= m.Processes || p.Size == 0 || p.Device == "" {
			return fmt.Errorf("%w: chunk %d of process %d, %d bytes on %q", errProtocol, i, p.Process, p.Size, p.Device)
		}
		if p.Maker < 0 || p.Maker > len(m.Pieces) || p.Maker == i+1 {
			return fmt.Errorf("%w: chunk %d of process %d is said to be that of piece %d", errProtocol, i, p.Process, p.Maker)
		}
		last = p.Process
	}
	return nil
}

// Status is what a keeper says of itself.
type Status struct {
	ID  string `json:"id"`
	PID int    `json:"pid"`
	Label
	Since time.Time `json:"since"`
	// Devices is how many bytes there are on each device.
	Devices map[string]uint64 `json:"devices"`
	Chunks  int               `json:"chunks"`
	// Confirmed says that the snapshot is complete.
	Confirmed bool `json:"confirmed"`
	// By is who is taking it just now, "" for nobody.
	By string `json:"by,omitempty"`
}

// Bytes is all of it.
func (s Status) Bytes() uint64 {
	sum := uint64(0)
	for _, n := range s.Devices {
		sum += n
	}
	return sum
}

// Home is the directory in which the keepers of a host listen. It is to be gone
// after a reboot, as they are.
type Home string

const (
	socketSuffix = ".sock"
	noteSuffix   = ".ended"
	// maxNote bounds what is read of a note.
	maxNote = 4096
)

// NewID returns a name that nobody else has.
func NewID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// IsID tells whether a text is a name that [NewID] makes.
func IsID(s string) bool {
	raw, err := hex.DecodeString(s)
	return err == nil && len(raw) == 16 && hex.EncodeToString(raw) == s
}

// make makes the directory, which is to be its user's alone.
func (h Home) make() error {
	if err := os.MkdirAll(string(h), 0o700); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Lstat(string(h), &st); err != nil {
		return &os.PathError{Op: "lstat", Path: string(h), Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || st.Mode&0o077 != 0 || int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%s is not a directory that only user %d can use (mode %#o, user %d)", h, os.Geteuid(), st.Mode, st.Uid)
	}
	return nil
}

func (h Home) socket(id string) string { return filepath.Join(string(h), id+socketSuffix) }

func (h Home) note(id string) string { return filepath.Join(string(h), id+noteSuffix) }

// ended says why there is no keeper of a name.
func (h Home) ended(id string) error {
	f, err := os.OpenFile(h.note(id), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("there is no keeper %s in %s: it was killed: %w", id, h, gpuplugin.ErrNotKept)
	}
	defer f.Close()
	text := make([]byte, maxNote)
	n, _ := f.Read(text)
	return fmt.Errorf("%s: %w", strings.TrimSpace(string(text[:n])), gpuplugin.ErrNotKept)
}

// List asks all keepers. One that ends meanwhile is left out, and one that does
// not answer is in the error, beside the others.
func (h Home) List(ctx context.Context) ([]Status, error) {
	entries, err := os.ReadDir(string(h))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []Status
	var errs []error
	for _, e := range entries {
		id, ok := strings.CutSuffix(e.Name(), socketSuffix)
		if !ok || !IsID(id) {
			continue
		}
		s, err := h.Status(ctx, id)
		switch {
		case err == nil:
			all = append(all, s)
		case !errors.Is(err, gpuplugin.ErrNotKept):
			errs = append(errs, fmt.Errorf("keeper %s: %w", id, err))
		}
	}
	slices.SortFunc(all, func(a, b Status) int { return a.Since.Compare(b.Since) })
	return all, errors.Join(errs...)
}

// Status asks one keeper.
func (h Home) Status(ctx context.Context, id string) (Status, error) {
	c, err := h.Connect(ctx, id)
	if err != nil {
		return Status{}, err
	}
	defer func() { _ = c.Close() }() // all was answered
	return c.Status(ctx)
}
