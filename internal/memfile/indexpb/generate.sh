#!/bin/sh
# SPDX-FileCopyrightText: The hetGPU authors
# SPDX-License-Identifier: Apache-2.0
#
# Makes index.pb.go of index.proto. Needs protoc (Debian: protobuf-compiler);
# the plugin is built at the version named here.
set -eu
# From the root of the module: the path is the file's name in protobuf's registry.
cd "$(dirname "$0")/../../.."
tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
GOBIN=$tools go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.11
PATH=$tools:$PATH protoc -I. --go_out=. --go_opt=paths=source_relative internal/memfile/indexpb/index.proto
