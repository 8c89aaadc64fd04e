// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Package helperapi is the protocol between the shim and the device helper
// hetgpu-gpu: typed ttrpc messages, and the errors that keep their class on
// the way. Both sides import it, so it must not know of either, nor load
// anything.
package helperapi

//go:generate ./generate.sh
