// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// HookProgram is the program that gives a container a control directory where
// no shim of ours does.
const HookProgram = "hetgpu-hook"

// IsInjectionHook tells whether a hook is ours.
func IsInjectionHook(h specs.Hook) bool { return path.Base(h.Path) == HookProgram }

// DropHooks removes the hooks for which drop says so. The others stay as they
// are written.
func (s *Spec) DropHooks(drop func(specs.Hook) bool) error {
	for _, list := range []struct {
		name  string
		hooks *[]specs.Hook
	}{
		{"prestart", &s.Hooks.Prestart},
		{"createRuntime", &s.Hooks.CreateRuntime},
		{"createContainer", &s.Hooks.CreateContainer},
		{"poststop", &s.Hooks.Poststop},
	} {
		if !slices.ContainsFunc(*list.hooks, drop) {
			continue
		}
		all, err := s.rawList([]string{"hooks", list.name})
		if err != nil || len(all) != len(*list.hooks) {
			return fmt.Errorf("hooks.%s: %d are written, and %d were read: %w", list.name, len(all), len(*list.hooks), cmp.Or(err, errMisread))
		}
		var kept []specs.Hook
		raw := []json.RawMessage{}
		for i, hook := range *list.hooks {
			if !drop(hook) {
				kept, raw = append(kept, hook), append(raw, all[i])
			}
		}
		*list.hooks = kept
		s.set(raw, "hooks", list.name)
	}
	return nil
}

// errMisread is a list that has other entries than were read.
var errMisread = errors.New("the list can't be edited")
