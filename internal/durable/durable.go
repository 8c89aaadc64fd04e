// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Package durable makes what was written outlive a crash of the host. It knows
// nothing of what that is.
package durable

import (
	"errors"
	"os"
)

// SyncDir returns when the names in a directory are on disk. Their contents are
// for each file's own fsync.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
