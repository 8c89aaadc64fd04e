#!/usr/bin/env bash
# SPDX-FileCopyrightText: The hetGPU authors
# SPDX-License-Identifier: Apache-2.0
#
# "make integration": the tests with real programs; with RUN=. twice where the
# machine has cgroups of version 1: once as it is, and once with the unified
# hierarchy mounted over them, in a mount namespace of its own. That has no
# controllers then, so only what freezes, dumps and restores is run with it.
#
# Usage: hack/integration.sh RUN
set -euo pipefail
. "$(dirname "$0")/lib.sh"

cd "$ROOT"
export GOTESTSUM_FORMAT=testname
once() { "$HACK/gotest.sh" -tags integration -count 1 -run "$1" -timeout 25m "$2"; }
# Real programs race on a machine with two busy cores: what failed gets a second
# chance, and both runs stand in the output.
tests() { once "$@" || { echo '== failed; a second and last time'; once "$@"; }; }

if [[ ${HETGPU_UNIFIED:-} ]]; then
	mount -t cgroup2 none /sys/fs/cgroup
	tests 'Checkpoint|Restore|GPU|Pause' ./integration
	exit
fi
tests "$1" ./integration/...
if [[ $1 == . && $(stat -fc %T /sys/fs/cgroup) != cgroup2fs ]]; then
	echo '== again, with the unified cgroup hierarchy'
	HETGPU_UNIFIED=1 unshare --mount --propagation private "$HACK/integration.sh" .
fi
