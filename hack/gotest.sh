#!/usr/bin/env bash
# SPDX-FileCopyrightText: The hetGPU authors
# SPDX-License-Identifier: Apache-2.0
#
# "go test" that prints failures in full, and every skipped test with its
# reason and their number.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

cd "$ROOT"
"$HACK/setup.sh" gotestsum

exec "$(program_dir gotestsum "$GOTESTSUM_VERSION")/gotestsum" --format "${GOTESTSUM_FORMAT:-pkgname}" -- "$@"
