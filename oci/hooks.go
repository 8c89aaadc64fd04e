// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"errors"
	"path"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// HookProgram is the program that gives a container a control directory where
// no shim of ours does.
const HookProgram = "hetgpu-hook"

// HookRestored is the one of the program's calls that no runtime makes: by it our
// shim has done, in the root of a container that is about to be restored, what a
// runtime does only when it makes one. AnnotationLayer, in the state that the program
// reads, names the file of the saved container's writable layer, if there is one.
const (
	HookRestored    = "restored"
	AnnotationLayer = "io.hetgpu.restore.layer"
)

// IsInjectionHook tells whether a hook is ours.
func IsInjectionHook(h specs.Hook) bool { return path.Base(h.Path) == HookProgram }

// DropHooks removes the hooks for which drop says so. The others stay as they
// are written.
func (s *Spec) DropHooks(drop func(specs.Hook) bool) error {
	return errors.Join(
		remove(s, []string{"hooks", "prestart"}, &s.Hooks.Prestart, drop),
		remove(s, []string{"hooks", "createRuntime"}, &s.Hooks.CreateRuntime, drop),
		remove(s, []string{"hooks", "createContainer"}, &s.Hooks.CreateContainer, drop),
		remove(s, []string{"hooks", "poststop"}, &s.Hooks.Poststop, drop),
	)
}
