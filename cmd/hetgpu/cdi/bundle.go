// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/hetgpu/containerd-shim-hetgpu/oci"
)

// ErrEdited means that a bundle has a CDI device of ours already.
var ErrEdited = errors.New("the bundle has the library already")

// Inject gives the container of a bundle CDI devices, as containerd and podman do
// it for theirs: it is for users of a plain runtime. What the container has in
// LD_LIBRARY_PATH stays, behind ours.
func Inject(bundle string, dirs, devices []string) error {
	edited, err := oci.Load(bundle)
	if err != nil {
		return err
	}
	if oci.Injected(edited) {
		return ErrEdited
	}
	name := filepath.Join(bundle, "config.json")
	data, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	spec := &specs.Spec{}
	if err := json.Unmarshal(data, spec); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	path := libraryPath(spec)
	cache, err := cache(dirs...)
	if err != nil {
		return err
	}
	missing, err := cache.InjectDevices(spec, devices...)
	if err != nil {
		return errors.Join(fmt.Errorf("devices %s in %s: %w", strings.Join(missing, ", "), strings.Join(cache.GetSpecDirectories(), ", "), err), specErrors(cache.GetErrors()))
	}
	keepPath(spec, path)
	if data, err = json.MarshalIndent(spec, "", "\t"); err != nil {
		return err
	}
	info, err := os.Stat(name)
	if err != nil {
		return err
	}
	if err := os.WriteFile(name+".new", append(data, '\n'), info.Mode().Perm()); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}

// specErrors are what is wrong with files in the directories.
func specErrors(all map[string][]error) error {
	var errs []error
	for _, list := range all {
		errs = append(errs, list...)
	}
	return errors.Join(errs...)
}

const libraryPathVariable = oci.EnvLibraryPath + "="

func libraryPath(spec *specs.Spec) string {
	if spec.Process == nil {
		return ""
	}
	for _, kv := range slices.Backward(spec.Process.Env) {
		if value, ok := strings.CutPrefix(kv, libraryPathVariable); ok {
			return value
		}
	}
	return ""
}

// keepPath puts back what CDI, which knows no lists, has replaced.
func keepPath(spec *specs.Spec, path string) {
	if path == "" || libraryPath(spec) == path {
		return
	}
	for i, kv := range spec.Process.Env {
		if strings.HasPrefix(kv, libraryPathVariable) {
			spec.Process.Env[i] = kv + ":" + path
		}
	}
}
