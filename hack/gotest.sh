#!/usr/bin/env bash
# SPDX-FileCopyrightText: The hetGPU authors
# SPDX-License-Identifier: Apache-2.0
#
# "go test" that prints failures in full, and every skipped test with its
# reason and their number.
#
# With AGAIN=N, where N tests at most have failed, those run a second time, alone.
# A test that passes then has failed all the same: it is named at the end, and is
# a bug of ours or of the test to be found.
#
# Usage: hack/gotest.sh FLAG... PACKAGES
set -euo pipefail
. "$(dirname "$0")/lib.sh"

cd "$ROOT"
"$HACK/setup.sh" gotestsum

flags=("${@:1:$#-1}") packages=${!#} again=()
if [[ ${AGAIN:-0} -gt 0 ]]; then
	report=$(mktemp)
	trap 'rm -f "$report"' EXIT
	again=(--rerun-fails=1 --rerun-fails-max-failures="$AGAIN" --rerun-fails-report="$report")
fi
"$(program_dir gotestsum "$GOTESTSUM_VERSION")/gotestsum" --format "${GOTESTSUM_FORMAT:-pkgname}" \
	"${again[@]}" --packages="$packages" -- "${flags[@]}"
if [[ -s ${report:-} ]]; then
	echo '== passed only when run again, alone: find out why'
	cat "$report"
fi
