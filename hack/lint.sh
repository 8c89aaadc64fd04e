#!/usr/bin/env bash
# SPDX-FileCopyrightText: The hetGPU authors
# SPDX-License-Identifier: Apache-2.0
#
# Finds what is wrong with the sources, without changing them; with --fix,
# mends what can be mended.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

cd "$ROOT"
"$HACK/setup.sh" lint
golangci=$(program_dir golangci-lint "$GOLANGCI_LINT_VERSION")/golangci-lint

if [ "${1:-}" = --fix ]; then
	go mod tidy
	"$golangci" fmt
	exec "$golangci" run --fix
fi
go mod tidy -diff
# The daemon of the tests and the module have to be of one version.
grep -q "containerd/v2 v$CONTAINERD_VERSION\$" go.mod || die "go.mod depends on another containerd than $CONTAINERD_VERSION (hack/versions.env)"
"$golangci" config verify
exec "$golangci" run
