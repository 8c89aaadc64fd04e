// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package opencl

import "github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"

// matrixExchange describes an operation on matrices over a warp.
func (e *emitter) matrixExchange(in *ir.Instr) *exchange {
	e.fail("%s", in.Op)
	return nil
}
