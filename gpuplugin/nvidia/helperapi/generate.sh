#!/bin/sh
# SPDX-FileCopyrightText: The hetGPU authors
# SPDX-License-Identifier: Apache-2.0
#
# Makes gpu.pb.go and gpu_ttrpc.pb.go of gpu.proto. Needs protoc (Debian:
# protobuf-compiler); the plugins are built at the versions named here.
set -eu
# From the root of the module: the path is the file's name in protobuf's registry.
cd "$(dirname "$0")/../../.."
tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
GOBIN=$tools go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.11
GOBIN=$tools go install github.com/containerd/ttrpc/cmd/protoc-gen-go-ttrpc@v1.2.10
PATH=$tools:$PATH protoc -I. \
	--go_out=. --go_opt=paths=source_relative \
	--go-ttrpc_out=. --go-ttrpc_opt=paths=source_relative \
	gpuplugin/nvidia/helperapi/gpu.proto
