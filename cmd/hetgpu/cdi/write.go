// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"tags.cncf.io/container-device-interface/pkg/cdi"
	"tags.cncf.io/container-device-interface/specs-go"
)

// Write writes the specification into a file at once, in YAML or, if its name
// ends so, in JSON. It is validated as those who read it do.
func Write(s *specs.Spec, file string) error {
	if ext := filepath.Ext(file); ext != ".yaml" && ext != ".json" {
		return fmt.Errorf("%s: a CDI specification is a .yaml or a .json", file)
	}
	dir, err := filepath.Abs(filepath.Dir(file))
	if err != nil {
		return err
	}
	// Built beside, so that nobody reads it before everybody may.
	temporary, err := os.MkdirTemp(dir, ".hetgpu")
	if errors.Is(err, os.ErrNotExist) {
		if err = os.MkdirAll(dir, 0o755); err == nil { //nolint:gosec // clients of any user read it
			temporary, err = os.MkdirTemp(dir, ".hetgpu")
		}
	}
	if err != nil {
		return err
	}
	defer os.RemoveAll(temporary)
	built, err := write(s, temporary, filepath.Base(file))
	if err != nil {
		return err
	}
	if err := os.Chmod(built, 0o644); err != nil { //nolint:gosec // clients of any user read it
		return err
	}
	return os.Rename(built, filepath.Join(dir, filepath.Base(file)))
}

// Print writes it in YAML.
func Print(s *specs.Spec, w io.Writer) error {
	temporary, err := os.MkdirTemp("", "hetgpu")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temporary)
	file, err := write(s, temporary, "hetgpu.yaml")
	if err != nil {
		return err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	_, err = w.Write(text)
	return err
}

func write(s *specs.Spec, dir, name string) (file string, err error) {
	cache, err := cache(dir)
	if err == nil {
		err = cache.WriteSpec(s, name)
	}
	if err != nil {
		return "", fmt.Errorf("CDI specification: %w", err)
	}
	return filepath.Join(dir, name), nil
}

// cache reads when it is told to, and watches nothing.
func cache(dirs ...string) (*cdi.Cache, error) {
	return cdi.NewCache(cdi.WithSpecDirs(dirs...), cdi.WithAutoRefresh(false))
}
