// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package interp

import (
	"fmt"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
)

// FaultKind is what a program did wrong.
type FaultKind uint8

// The kinds.
const (
	OutOfBounds      FaultKind = iota + 1 // an access to what is not mapped
	Misaligned                            // an address that is no multiple of the access' size
	DivergentBarrier                      // a barrier that not all of its threads reach
	DivergentWarp                         // an operation of a warp that not all of its members reach
	Trapped                               // trap
	Asserted                              // a device-side assert
	StepLimit                             // Launch.MaxSteps
	BadCall                               // an indirect call or branch to what is not there
	StackOverflow                         // more local memory than a thread has
)

var faultNames = [...]string{
	OutOfBounds: "out of bounds", Misaligned: "misaligned address",
	DivergentBarrier: "barrier that not all threads reach", DivergentWarp: "warp operation that not all members reach",
	Trapped: "trap", Asserted: "assertion", StepLimit: "step limit", BadCall: "call or branch to nowhere", StackOverflow: "stack overflow",
}

func (k FaultKind) String() string {
	if int(k) < len(faultNames) && faultNames[k] != "" {
		return faultNames[k]
	}
	return fmt.Sprintf("fault %d", uint8(k))
}

// Fault is the error of a program that can't go on. Its launch has ended; memory
// is as it was at that moment.
type Fault struct {
	Kind FaultKind
	Func string // of the instruction
	Pos  ir.Pos
	// Block and Thread are linear indices: x + nx*(y + ny*z).
	Block, Thread uint32
	// Space and Address are those of an access.
	Space   ir.Space
	Address uint64
	Detail  string // more about it, or ""
}

func (f *Fault) Error() string {
	s := fmt.Sprintf("%s: line %d: %s: block %d, thread %d", f.Func, f.Pos.Line, f.Kind, f.Block, f.Thread)
	if f.Kind == OutOfBounds || f.Kind == Misaligned {
		s += fmt.Sprintf(", %s address %#x", f.Space, f.Address)
	}
	if f.Detail != "" {
		s += ": " + f.Detail
	}
	return s
}
