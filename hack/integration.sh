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
[[ $1 != . ]] || export AGAIN=10
tests() { "$HACK/gotest.sh" -tags integration -count 1 -run "$1" -timeout 50m "$2"; }

# own_groups prints a directory for a cgroup of its own below the one that this
# shell is in, for each hierarchy of version 1. In the second run containers are
# in the unified hierarchy's only; in version 1's they are where their shim is,
# and CRIU saves and makes again the whole tree below that: below the root, also
# the cgroups of containers that have nothing to do with it and are gone.
own_groups() {
	local id controllers path dir
	while IFS=: read -r id controllers path; do
		dir=/sys/fs/cgroup/${controllers#name=}$path
		[[ $id == 0 || ! -d $dir ]] || printf '%s/hg-%s\n' "${dir%/}" $$
	done </proc/self/cgroup
}

# enter_group makes a cgroup and moves this shell into it.
enter_group() {
	local file
	mkdir "$1"
	for file in "$1"/cpuset.{cpus,mems}; do # empty at first, and nothing can enter then
		[[ ! -e $file ]] || cat "${1%/*}/${file##*/}" >"$file"
	done
	echo $BASHPID >"$1/cgroup.procs"
}

if [[ ${HETGPU_UNIFIED:-} ]]; then
	mount -t cgroup2 none /sys/fs/cgroup
	tests 'Checkpoint|Restore|GPU|Pause' ./integration
	exit
fi
tests "$1" ./integration/...
if [[ $1 == . && $(stat -fc %T /sys/fs/cgroup) != cgroup2fs ]]; then
	echo '== again, with the unified cgroup hierarchy'
	mapfile -t groups < <(own_groups)
	trap 'rmdir "${groups[@]}"' EXIT
	(
		for group in "${groups[@]}"; do enter_group "$group"; done
		HETGPU_UNIFIED=1 exec unshare --mount --propagation private "$HACK/integration.sh" .
	)
fi
