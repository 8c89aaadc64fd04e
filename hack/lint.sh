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
"$golangci" config verify
exec "$golangci" run
