// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Package passes has what is found out about a program in the compiler's IR, and
// what changes it on its way to a back end.
//
// Analyses: control flow, dominators, loops, liveness, uniformity, pointers.
// Changes: the list Passes, which Prepare runs in order. Both know the IR only:
// no PTX, no target language, and nothing of pausing.
package passes
