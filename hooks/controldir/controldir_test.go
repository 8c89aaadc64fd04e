// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package controldir

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestMakeAndRemove(t *testing.T) {
	bundle := t.TempDir()
	if err := Remove(bundle); err != nil {
		t.Errorf("of one that is not there: %v", err)
	}
	err := Make(bundle)
	if errors.Is(err, unix.EPERM) {
		t.Skip("mounting takes privileges")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = Remove(bundle) })
	dir := Path(bundle)
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o777 || info.Mode()&os.ModeSticky == 0 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	l, err := net.Listen("unix", filepath.Join(dir, "hetcuda.1"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	// A container can't fill the host's memory through it.
	if err := os.WriteFile(filepath.Join(dir, "large"), make([]byte, 1<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("a large file: %v", err)
	}
	if err := Remove(bundle); err != nil { // as it is, with what is in it
		t.Fatal(err)
	}
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is there: %v", err)
	}
	// A shim that was killed between the two steps.
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Remove(bundle); err != nil {
		t.Error(err)
	}
}
