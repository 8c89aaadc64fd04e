// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Package version holds the version of this build. It imports nothing.
package version

// Version is set by the linker (see Makefile) to what "git describe" says.
var Version = "unknown"
