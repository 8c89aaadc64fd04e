// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package interp

func (b *builder) mma() error       { return errType }
func (b *builder) wmmaLoad() error  { return errType }
func (b *builder) wmmaStore() error { return errType }
func (b *builder) ldmatrix() error  { return errType }
func (b *builder) stmatrix() error  { return errType }
func (b *builder) movmatrix() error { return errType }
