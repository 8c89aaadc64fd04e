#!/bin/sh
# SPDX-FileCopyrightText: The hetGPU authors
# SPDX-License-Identifier: Apache-2.0
#
# Installs hetGPU on a node from the image of the DaemonSet, or removes it.
#
#   install.sh install     programs, libhetcuda, CRIU, containerd's drop-in file,
#                          and where there is an NVIDIA driver the CDI file
#   install.sh run         the same, then wait: the DaemonSet's command
#   install.sh uninstall   remove what install made, if no container needs it
#
# Each can be repeated: what is as it should be is left, and containerd is
# restarted only if its configuration has changed, or it could not find CRIU before.
# Containers go on meanwhile.
set -eu

# Where the node's root and the image's files are, and how containerd is
# restarted. Tests have other values.
: "${HOST:=/host}"
: "${IMAGE:=/hetgpu}"
: "${RESTART:=nsenter --target 1 --mount --uts --ipc --net --pid -- systemctl restart containerd}"
: "${CONTAINERD_CONFIG:=/etc/containerd/config.toml}"

PROGRAMS="containerd-shim-hetgpu-v2 hetgpu hetgpu-gpu hetgpu-hook"
BIN=/usr/local/bin
LIB=/usr/local/lib/hetgpu
CRIU=/opt/hetgpu/criu
CDI=/etc/cdi/hetgpu.yaml
PENDING=/run/hetgpu-install.pending

say() { echo "install.sh: $*" >&2; }

# hetgpu runs our command on the node.
hetgpu() { chroot "$HOST" "$BIN/hetgpu" "$@"; }

# put FILE NODE_FILE MODE copies a file to the node, if it has another. It is
# replaced at once, so a program that runs goes on with the old one.
put() {
	! cmp -s "$1" "$HOST$2" || return 0
	mkdir -p "$HOST${2%/*}"
	cp "$1" "$HOST$2.new"
	chmod "$3" "$HOST$2.new"
	mv -f "$HOST$2.new" "$HOST$2"
	say "wrote $2"
}

install_programs() {
	for program in $PROGRAMS; do
		put "$IMAGE/bin/$program" "$BIN/$program" 755
	done
	put "$IMAGE/lib/hetgpu/libcuda.so.1" "$LIB/libcuda.so.1" 755
	for file in "$IMAGE"/criu/*/*; do
		[ ! -f "$file" ] || put "$file" "$CRIU${file#"$IMAGE/criu"}" 755
	done
}

# restart_later notes that containerd has to be restarted. If that does not work, the
# next run does it; a boot does too.
restart_later() {
	mkdir -p "$HOST${PENDING%/*}"
	: >"$HOST$PENDING"
}

# link_criu makes CRIU one that containerd finds: before it asks for a container's
# checkpoint it looks for one in its PATH, whatever takes the checkpoint then, and
# remembers what it found.
link_criu() {
	for dir in /usr/local/sbin "$BIN" /usr/sbin /usr/bin /sbin /bin; do
		[ ! -e "$HOST$dir/criu" ] && [ ! -L "$HOST$dir/criu" ] || return 0
	done
	restart_later
	ln -s "$CRIU/bin/criu" "$HOST$BIN/criu"
	say "linked $BIN/criu"
}

# tell_containerd writes or removes the drop-in file.
tell_containerd() {
	changes=$(hetgpu "$@" --containerd-config "$CONTAINERD_CONFIG" --dry-run)
	if [ -n "$changes" ]; then
		restart_later
		changes=$(hetgpu "$@" --containerd-config "$CONTAINERD_CONFIG")
		say "$changes"
	fi
	[ -e "$HOST$PENDING" ] || return 0
	$RESTART
	rm "$HOST$PENDING"
	say "containerd was restarted"
}

describe_gpus() {
	[ -e "$HOST/proc/driver/nvidia/version" ] || return 0
	# A node whose driver is not ready yet has its containers without our CDI
	# device until the next run.
	hetgpu cdi generate --output "$CDI" || say "no CDI device: see above"
}

do_install() {
	install_programs
	link_criu
	tell_containerd install --shim "$BIN/containerd-shim-hetgpu-v2"
	describe_gpus
	say "done"
}

# remove_empty removes directories that are ours, if nobody has put anything there.
remove_empty() {
	for dir; do
		[ ! -d "$HOST$dir" ] || rmdir "$HOST$dir" 2>/dev/null || say "$dir is not empty, and stays"
	done
}

do_uninstall() {
	if [ ! -x "$HOST$BIN/hetgpu" ]; then
		say "not installed"
		return 0
	fi
	tell_containerd uninstall # refuses while containers run with our shim
	if [ -f "$HOST$CDI" ] && grep -q '^kind: hetgpu.io/gpu$' "$HOST$CDI"; then
		rm "$HOST$CDI"
	fi
	# hetgpu is the last: while it is there the next run goes on with what is left.
	for program in $PROGRAMS; do
		[ "$program" = hetgpu ] || rm -f "$HOST$BIN/$program"
	done
	rm -f "$HOST$LIB/libcuda.so.1"
	[ "$(readlink "$HOST$BIN/criu")" != "$CRIU/bin/criu" ] || rm "$HOST$BIN/criu"
	rm -rf "${HOST:?}$CRIU"
	remove_empty "$LIB" "${CRIU%/*}"
	rm -f "$HOST$BIN/hetgpu"
	say "done"
}

case ${1:-} in
install) do_install ;;
uninstall) do_uninstall ;;
run)
	trap 'exit 0' TERM INT
	do_install
	# A pod that ends would be started again.
	while :; do
		sleep 86400 &
		wait $!
	done
	;;
*)
	echo "usage: install.sh install | run | uninstall" >&2
	exit 2
	;;
esac
