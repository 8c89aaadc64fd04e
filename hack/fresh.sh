#!/usr/bin/env bash
# SPDX-FileCopyrightText: The hetGPU authors
# SPDX-License-Identifier: Apache-2.0
#
# Runs a command on this commit as on a new machine: in a Debian of its own that
# has only what debootstrap calls minbase, gcc and this machine's Go, with empty
# caches. Unless told otherwise that is the README's two commands, once apt has
# brought make. The Debian is the tree below DIR, which must not exist yet and
# stays for a look; the kernel, its cgroups and the network are this machine's.
# Needs root and debootstrap.
#
# Usage: hack/fresh.sh SUITE DIR [COMMAND]     SUITE: bookworm, trixie
set -euo pipefail
. "$(dirname "$0")/lib.sh"

inside() {
	local tree=$1 command=$2
	mount --bind "$tree" "$tree"
	cd "$tree"
	mkdir -p old usr/local/go
	mount --rbind /dev dev
	mount --rbind /sys sys
	mount -t proc proc proc
	mount -t tmpfs run run
	mount -t tmpfs tmp tmp
	mount --bind "$(go env GOROOT)" usr/local/go
	pivot_root . old
	cd /root/hetgpu
	umount -l /old
	# CRIU can't dump what is open in a mount namespace that is not there.
	exec </dev/null
	for fd in /proc/self/fd/*; do
		fd=${fd##*/}
		((fd <= 2)) || eval "exec $fd>&-"
	done
	exec env -i HOME=/root LANG=C.UTF-8 CI=true ${GOPROXY:+GOPROXY="$GOPROXY"} ${GOSUMDB:+GOSUMDB="$GOSUMDB"} \
		PATH=/usr/local/go/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin bash -euxc "$command"
}

if [[ ${1:-} == --inside ]]; then
	inside "$2" "$3"
fi
[[ $# -ge 2 ]] || die 'usage: hack/fresh.sh SUITE DIR [COMMAND]'
suite=$1 tree=$2 command=${3:-hack/setup.sh packages && make demo && .ci/run}
[[ ! -e $tree ]] || die "$tree exists; give a directory that does not"

debootstrap --variant=minbase --include=gcc,libc6-dev,ca-certificates "$suite" "$tree"
cp /etc/resolv.conf "$tree/etc/resolv.conf"
# How this machine reaches mirrors, and how old a mirror's list may be.
apt-config dump Acquire >"$tree/etc/apt/apt.conf.d/99acquire"
# Whom this machine trusts, behind a proxy for example.
cp -r /usr/local/share/ca-certificates "$tree/usr/local/share/"
chroot "$tree" update-ca-certificates >/dev/null
git clone -q "$ROOT" "$tree/root/hetgpu"
exec unshare --mount --propagation private "$0" --inside "$(realpath "$tree")" "$command"
