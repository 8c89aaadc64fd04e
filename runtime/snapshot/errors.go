// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package snapshot

import "errors"

var (
	// ErrNoManifest means that the directory has no manifest: it is no
	// snapshot, or the stock shim made it.
	ErrNoManifest = errors.New("no " + ManifestName + " in the snapshot")
	// ErrCorrupt means that the snapshot is not what its manifest says, or
	// that the manifest is not what was written.
	ErrCorrupt = errors.New("snapshot is damaged")
	// ErrNewerVersion means that a newer hetGPU wrote the snapshot.
	ErrNewerVersion = errors.New("snapshot has a newer format")
)
