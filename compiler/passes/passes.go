// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Package passes has what is found out about a program in the compiler's IR, and
// what changes it on its way to a back end.
//
// Analyses: control flow, dominators, loops, liveness, uniformity, pointers.
// Changes: the list Passes, which Prepare runs in order. Both know the IR only:
// no PTX, no target language, and nothing of pausing.
package passes

import (
	"fmt"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
)

// Pass changes a module.
type Pass struct {
	Name string
	Run  func(*ir.Module) error
}

// Passes are what Prepare does, in order.
var Passes = []Pass{
	{"hoist", hoistShared},
	{"inline", inline},
	{"stack", callStack},
	{"alloca", allocaArea},
	{"unreachable", unreachable},
	{"promote", promote},
	{"unused", unused},
}

// order is why Passes are in that order; a test checks it.
var order = []struct{ first, then, reason string }{
	{"hoist", "inline", "a pasted body must not bring a second copy of a shared variable"},
	{"hoist", "stack", "the same"},
	{"inline", "stack", "the stack is for the calls that are left"},
	{"inline", "alloca", "what a pasted body takes is the kernel's"},
	{"stack", "alloca", "calls save and restore where the area ends"},
	{"stack", "unreachable", "there may be no function that a call can reach"},
	{"unreachable", "promote", "what is never executed must not keep a variable in memory"},
	{"inline", "promote", "what a call passes is accessed at both its ends"},
	{"promote", "unused", "promoted variables' accesses are gone"},
	{"unreachable", "unused", "blocks that are gone name nothing"},
}

// Prepare makes m what back ends take: kernels without calls, without shared
// variables of their own, and without Alloca. Device functions stay, for their
// addresses; nothing executes them.
func Prepare(m *ir.Module) error {
	for _, p := range Passes {
		if err := p.Run(m); err != nil {
			return fmt.Errorf("%s: %w", p.Name, err)
		}
	}
	return nil
}
