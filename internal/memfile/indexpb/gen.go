// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Package indexpb is the index of device memory as it is encoded. Only memfile
// uses it, and checks what it reads.
package indexpb

//go:generate ./generate.sh
