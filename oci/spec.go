// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Package oci reads what a container's OCI spec says of GPUs and of us, and
// edits specs. All but [Load] and [Save] are pure functions of a spec.
//
// It must not know of containerd's API, runc's state or a GPU driver.
package oci

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// specName is the file of a bundle that holds the spec.
const specName = "config.json"

// Load reads the spec of a bundle.
func Load(bundle string) (*specs.Spec, error) {
	data, err := os.ReadFile(filepath.Join(bundle, specName))
	if err != nil {
		return nil, fmt.Errorf("read the container's spec: %w", err)
	}
	var spec specs.Spec
	if err := json.Unmarshal(data, &spec); err != nil {
		return nil, fmt.Errorf("read the container's spec %s: %w", filepath.Join(bundle, specName), err)
	}
	return &spec, nil
}

// Save replaces the spec of a bundle and keeps the file's mode. A reader sees
// the old one or the new one.
func Save(bundle string, spec *specs.Spec) error {
	data, err := json.Marshal(spec)
	if err != nil {
		return fmt.Errorf("write the container's spec: %w", err)
	}
	name := filepath.Join(bundle, specName)
	old, err := os.Stat(name)
	if err != nil {
		return fmt.Errorf("write the container's spec: %w", err)
	}
	if err := os.WriteFile(name+".new", data, 0o600); err != nil {
		return fmt.Errorf("write the container's spec: %w", err)
	}
	// Whatever the umask says.
	if err := os.Chmod(name+".new", old.Mode().Perm()); err != nil {
		return fmt.Errorf("write the container's spec: %w", err)
	}
	if err := os.Rename(name+".new", name); err != nil {
		return fmt.Errorf("write the container's spec: %w", err)
	}
	return nil
}
