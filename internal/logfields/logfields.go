// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Package logfields is the list of keys under which log entries carry their
// fields, so that one thing has one name in every log.
package logfields

// The keys. Units are part of the name where there is one.
const (
	Namespace = "namespace"
	ID        = "id"
	Engine    = "engine"
	Phase     = "phase"
	PID       = "pid"
	Path      = "path"
	Device    = "device"
	Attempt   = "attempt"
	Seconds   = "seconds"
	Bytes     = "bytes"
)
