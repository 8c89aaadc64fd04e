// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

//go:build race

package compiler

// The race detector keeps fmt from using its buffers again.
func init() { mostMemory *= 5 }
