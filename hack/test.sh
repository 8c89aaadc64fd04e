#!/usr/bin/env bash
# SPDX-FileCopyrightText: The hetGPU authors
# SPDX-License-Identifier: Apache-2.0
#
# "make test": every phase, and how long each took. Stops at the first that
# fails.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

cd "$ROOT"
times=()
for phase in setup lint build unit integration; do
	printf '== %s\n' "$phase"
	start=$SECONDS
	make --no-print-directory "$phase" || die "$phase failed after $((SECONDS - start)) s"
	times+=("$phase $((SECONDS - start)) s")
done
printf '== passed in %d s:' "$SECONDS"
printf ' %s.' "${times[@]}"
printf '\n'
