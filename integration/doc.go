// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Package integration tests the shim with real parts: containerd in two
// versions, ctr, nerdctl, runc and CRIU. Its tests have the build tag
// "integration", need root, and are run by "make integration".
//
// The same tests run against the stock shim with -runtime
// io.containerd.runc.v2, which tells whether a test asks for more than a runc
// shim gives.
package integration
