#!/usr/bin/env bash
# SPDX-FileCopyrightText: The hetGPU authors
# SPDX-License-Identifier: Apache-2.0
#
# Brings a machine that has Go, gcc and apt (Debian 12 or 13) to where this
# project builds and tests. Safe to run again: what is there is left alone, and
# then it takes about a second. Two runs at once wait for each other.
#
#   hack/setup.sh                everything
#   hack/setup.sh PART...        packages, opencl, criu, runc, containerd, nerdctl, kubelet, controlplane, cni, toolkit, checkpointctl, lint, gotestsum
set -euo pipefail
. "$(dirname "$0")/lib.sh"

# Headers and pkg-config are for runc's seccomp, patchelf for CRIU, busybox for
# the test image, musl for programs that run in it, curl for recipes of the
# documentation. CRIU runs iptables-restore to lock a container's network; kmod
# loads the modules that it needs for that.
PACKAGES=(ca-certificates debian-archive-keyring libseccomp-dev pkg-config patchelf busybox-static musl-tools iptables kmod make git curl xz-utils)

# What the compiler's tests need: OpenCL on the CPU, and compilers for GPUs of AMD
# and Intel. clang has to be of the version that wrote AMD's library. Debian 13 has
# no compiler for Intel's; the tests that need it are skipped there.
OPENCL_PACKAGES=(pocl-opencl-icd ocl-icd-opencl-dev)
case $(. /etc/os-release && echo "${VERSION_ID:-}") in
12) OPENCL_PACKAGES+=(clang-15 lld-15 rocm-device-libs intel-opencl-icd) ;;
*) OPENCL_PACKAGES+=(clang-17 lld-17 rocm-device-libs-17) ;;
esac

# A build that hangs must end before CI's patience does.
DOWNLOAD_TIMEOUT=600

as_root() {
	if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}

install_packages() {
	local missing=() p
	for p; do
		[ "$(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null)" = installed ] || missing+=("$p")
	done
	[ ${#missing[@]} -gt 0 ] || return 0
	say "installing ${missing[*]}"
	# A third-party source that can't be reached must not stop us: the install
	# below says what is missing.
	as_root timeout "$DOWNLOAD_TIMEOUT" apt-get -qq update || say "apt-get update failed; going on with the lists at hand"
	as_root timeout "$DOWNLOAD_TIMEOUT" env DEBIAN_FRONTEND=noninteractive \
		apt-get -qq install -y --no-install-recommends "${missing[@]}" >/dev/null
}

setup_packages() { install_packages "${PACKAGES[@]}"; }
setup_opencl() { install_packages "${OPENCL_PACKAGES[@]}"; }

# module_dir MODULE VERSION prints the module's directory in the module cache.
module_dir() {
	local answer
	# Outside any module, so that nothing of ours is resolved or changed. What
	# goes wrong is in the answer itself, on standard output.
	answer=$(cd / && timeout "$DOWNLOAD_TIMEOUT" go mod download -json "$1@$2") ||
		die "could not download $1 $2: ${answer:-no answer of go mod download in $DOWNLOAD_TIMEOUT s}"
	sed -n 's/^\t"Dir": "\(.*\)",$/\1/p' <<<"$answer"
}

# built_as RECIPE DIR: are the programs there, and built in this way?
built_as() { [ -d "$2/bin" ] && [ "$(cat "$2/recipe" 2>/dev/null)" = "$1" ]; }

# cached NAME VERSION FUNCTION runs "FUNCTION OUTPUT-DIR" unless the programs
# are in the cache, built by that very function; they appear there all at once.
cached() {
	local name=$1 version=$2 build=$3 dir tmp recipe start=$SECONDS
	dir=$(dirname "$(program_dir "$name" "$version")")
	recipe=$(declare -f "$build")
	! built_as "$recipe" "$dir" || return 0
	mkdir -p "$HETGPU_CACHE"
	(
		flock 9
		! built_as "$recipe" "$dir" || exit 0
		say "building $name $version"
		tmp=$(mktemp -d "$HETGPU_CACHE/tmp-$name.XXXXXX")
		trap 'chmod -R u+w "$tmp"; rm -rf "$tmp"' EXIT
		mkdir -p "$tmp/out/bin"
		"$build" "$version" "$tmp/out/bin" "$tmp"
		printf '%s\n' "$recipe" >"$tmp/out/recipe"
		rm -rf "$dir"
		mv "$tmp/out" "$dir"
		say "built $name $version in $((SECONDS - start)) s"
	) 9>"$HETGPU_CACHE/$name-$version.lock"
}

# go_build MODULE-DIR ARGS... builds from the module cache, where the module's
# own go.mod decides its dependencies.
go_build() {
	local dir=$1
	shift
	GOFLAGS=-buildvcs=false nice go build -C "$dir" -trimpath -mod=readonly "$@"
}

build_containerd() {
	local version=$1 out=$2 dir
	dir=$(module_dir github.com/containerd/containerd/v2 "v$version")
	local flags=(-o "$out/" -ldflags "-s -w -X github.com/containerd/containerd/v2/version.Version=v$version")
	CGO_ENABLED=0 go_build "$dir" "${flags[@]}" ./cmd/containerd ./cmd/ctr
	# As containerd's Makefile does: ours is measured beside it.
	CGO_ENABLED=0 go_build "$dir" "${flags[@]}" -tags no_grpc ./cmd/containerd-shim-runc-v2
}

build_runc() {
	local version=$1 out=$2 dir
	dir=$(module_dir github.com/opencontainers/runc "v$version")
	CGO_ENABLED=1 go_build "$dir" -o "$out/runc" -tags seccomp -ldflags '-s -w' .
}

build_nerdctl() {
	local version=$1 out=$2 tmp=$3 dir
	dir=$(module_dir github.com/containerd/nerdctl/v2 "v$version")
	# Its go.mod replaces a module of test helpers by a directory that the
	# published module lacks. One file outside the tests uses it, for tests.
	cp -r --no-preserve=mode "$dir" "$tmp/src"
	rm "$tmp/src/cmd/nerdctl/helpers/testing_linux.go"
	mkdir -p "$tmp/src/mod/tigron"
	printf 'module github.com/containerd/nerdctl/mod/tigron\n\ngo 1.24\n' >"$tmp/src/mod/tigron/go.mod"
	CGO_ENABLED=0 go_build "$tmp/src" -o "$out/nerdctl" \
		-ldflags "-s -w -X github.com/containerd/nerdctl/v2/pkg/version.Version=v$version" ./cmd/nerdctl
}

# staging MODULE-DIR VERSION prints the replace lines for a module of our own that
# depends on Kubernetes: its own go.mod has those modules below ./staging, which
# the published module lacks, and they are published as v0.X.
staging() {
	sed -n 's#^\t*\(k8s\.io/[a-z-]*\) => \./staging/.*#replace \1 => \1 v0.'"${2#*.}"'#p' "$1/go.mod"
}

# kubernetes VERSION TMP OUT PACKAGE... builds programs of Kubernetes, or of what it
# depends on in the version that it depends on.
kubernetes() {
	local version=$1 src=$2/src out=$3 dir base=k8s.io/component-base/version
	shift 3
	if [ ! -d "$src" ]; then
		dir=$(module_dir k8s.io/kubernetes "v$version")
		mkdir "$src"
		{
			printf 'module programs\n\n'
			grep -E '^(go|godebug) ' "$dir/go.mod"
			printf '\nrequire k8s.io/kubernetes v%s\n\n' "$version"
			staging "$dir" "$version"
		} >"$src/go.mod"
	fi
	# Its checksums are those of the checksum database.
	CGO_ENABLED=0 GOFLAGS=-buildvcs=false nice go build -C "$src" -trimpath -mod=mod -o "$out" \
		-ldflags "-s -w -X $base.gitVersion=v$version -X $base.gitMajor=1 -X $base.gitMinor=$(cut -d. -f2 <<<"$version")" "$@"
}

build_kubelet() { kubernetes "$1" "$3" "$2/" k8s.io/kubernetes/cmd/kubelet; }

build_controlplane() {
	kubernetes "$1" "$3" "$2/" k8s.io/kubernetes/cmd/kube-apiserver k8s.io/kubernetes/cmd/kubectl
	kubernetes "$1" "$3" "$2/etcd" go.etcd.io/etcd/server/v3
}

build_cni() {
	local version=$1 out=$2 dir
	dir=$(module_dir github.com/containernetworking/plugins "v$version")
	CGO_ENABLED=0 go_build "$dir" -o "$out/" -ldflags '-s -w' ./plugins/main/ptp ./plugins/main/loopback ./plugins/ipam/host-local
}

# As its Makefile does: both load the driver's library when they run.
build_toolkit() {
	local version=$1 out=$2 dir
	dir=$(module_dir github.com/NVIDIA/nvidia-container-toolkit "v$version")
	CGO_ENABLED=1 CGO_CFLAGS=-w go_build "$dir" -o "$out/" \
		-ldflags "-s -w -X github.com/NVIDIA/nvidia-container-toolkit/internal/info.version=$version '-extldflags=-Wl,-z,lazy -Wl,--export-dynamic -Wl,--unresolved-symbols=ignore-in-object-files'" \
		./cmd/nvidia-ctk ./cmd/nvidia-cdi-hook ./cmd/nvidia-container-runtime
}

# go_install PACKAGE VERSION OUT builds a program that is published as a module
# that depends on nothing but other modules.
go_install() {
	(cd / && GOBIN=$3 CGO_ENABLED=0 GOFLAGS=-buildvcs=false nice go install -trimpath -ldflags '-s -w' "$1@v$2")
}
build_golangci_lint() { go_install github.com/golangci/golangci-lint/v2/cmd/golangci-lint "$1" "$2"; }
build_checkpointctl() {
	local version=$1 out=$2 tmp=$3
	mkdir "$tmp/src"
	# The version of go-criu that it asks for is not to be had everywhere.
	printf 'module checkpointctl\n\ngo 1.26\n\nrequire %s v%s\n\nreplace %s => %s v%s\n' \
		github.com/checkpoint-restore/checkpointctl "$version" \
		github.com/checkpoint-restore/go-criu/v8 github.com/checkpoint-restore/go-criu/v8 "$CHECKPOINTCTL_GO_CRIU_VERSION" >"$tmp/src/go.mod"
	CGO_ENABLED=0 GOFLAGS=-buildvcs=false nice go build -C "$tmp/src" -trimpath -mod=mod -o "$out/checkpointctl" \
		-ldflags '-s -w' github.com/checkpoint-restore/checkpointctl
}
build_gotestsum() { go_install gotest.tools/gotestsum "$1" "$2"; }

# criu_works BINARY: is it new enough, and does it agree with this kernel?
criu_works() {
	local version
	version=$("$1" --version 2>/dev/null | sed -n 's/^Version: //p') || return 1
	dpkg --compare-versions "${version:-0}" ge "$CRIU_MIN_VERSION" || return 1
	as_root timeout 60 "$1" check >/dev/null 2>&1
}

# debian_mirror prints the mirror that this machine itself uses for Debian.
debian_mirror() {
	apt-get indextargets --format '$(CREATED_BY)|$(ORIGIN)|$(SUITE)|$(REPO_URI)' |
		awk -F'|' '$1 == "Packages" && $2 == "Debian" && $3 !~ /security|updates|backports/ { print $4; exit }'
}

# fetch_criu SUITE DIR unpacks Debian's CRIU and everything it links into
# DIR/root, with an apt state of its own: nothing of this machine's packages is
# read or changed.
fetch_criu() {
	local suite=$1 dir=$2 uri deb
	uri=$(debian_mirror)
	[ -n "$uri" ] || die "found no Debian mirror in the configuration of apt"
	mkdir -p "$dir"/state/lists/partial "$dir"/cache/archives/partial "$dir/root"
	: >"$dir/state/status"
	echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $uri $suite main" >"$dir/sources.list"
	local apt=(timeout "$DOWNLOAD_TIMEOUT" apt-get -qq -o "Dir::Etc::SourceList=$dir/sources.list" -o Dir::Etc::SourceParts=/dev/null
		-o "Dir::State=$dir/state" -o "Dir::State::status=$dir/state/status" -o "Dir::Cache=$dir/cache"
		-o APT::Sandbox::User=root -o Acquire::Languages=none)
	"${apt[@]}" update || return 1
	"${apt[@]}" install -y --no-install-recommends --download-only criu >/dev/null || return 1
	for deb in "$dir"/cache/archives/*.deb; do dpkg-deb -x "$deb" "$dir/root"; done
}

# assemble_criu DIR lays DIR/root out as DIR/prefix: bin/criu and lib/.
assemble_criu() {
	local dir=$1 prefix=$HETGPU_CRIU_PREFIX
	mkdir -p "$dir/prefix/bin" "$dir/prefix/lib"
	find "$dir/root" -path '*-linux-gnu*/l*.so.*' -not -path '*/gconv/*' -exec cp -a {} "$dir/prefix/lib/" \;
	cp "$dir"/root/usr/sbin/criu "$dir/prefix/bin/criu"
	# Without --force-rpath the libraries' own libraries are not found.
	patchelf --set-interpreter "$prefix/lib/$(basename "$(patchelf --print-interpreter "$dir/prefix/bin/criu")")" \
		--force-rpath --set-rpath "$prefix/lib" "$dir/prefix/bin/criu"
}

setup_criu() {
	local own=$HETGPU_CRIU_PREFIX/bin/criu system suite tmp
	if [ -x "$own" ]; then
		criu_works "$own" && return 0
		say "$own does not work on this kernel; getting it again"
	elif system=$(command -v criu) && criu_works "$system"; then
		return 0
	fi
	for suite in $CRIU_SUITES; do
		say "getting CRIU from Debian $suite"
		tmp=$(mktemp -d)
		if fetch_criu "$suite" "$tmp" && assemble_criu "$tmp"; then
			as_root mkdir -p "$(dirname "$HETGPU_CRIU_PREFIX")"
			as_root rm -rf "$HETGPU_CRIU_PREFIX"
			as_root cp -a "$tmp/prefix" "$HETGPU_CRIU_PREFIX"
		fi
		rm -rf "$tmp"
		if criu_works "$own"; then
			say "$("$own" --version | head -1) of CRIU in $HETGPU_CRIU_PREFIX"
			return 0
		fi
		say "CRIU from $suite does not work here"
	done
	[ ! -x "$own" ] || as_root "$own" check >&2 || true
	die "no CRIU of $CRIU_MIN_VERSION or newer that passes 'criu check' on kernel $(uname -r)"
}

setup_containerd() {
	cached containerd "$CONTAINERD_VERSION" build_containerd
	cached containerd "$CONTAINERD_OLD_VERSION" build_containerd
}
setup_runc() { cached runc "$RUNC_VERSION" build_runc; }
setup_nerdctl() { cached nerdctl "$NERDCTL_VERSION" build_nerdctl; }
setup_kubelet() { cached kubelet "$KUBELET_VERSION" build_kubelet; }
setup_controlplane() { cached controlplane "$KUBELET_VERSION" build_controlplane; }
setup_cni() { cached cni "$CNI_VERSION" build_cni; }
setup_toolkit() { cached toolkit "$NVIDIA_TOOLKIT_VERSION" build_toolkit; }
setup_checkpointctl() { cached checkpointctl "$CHECKPOINTCTL_VERSION" build_checkpointctl; }
setup_lint() { cached golangci-lint "$GOLANGCI_LINT_VERSION" build_golangci_lint; }
setup_gotestsum() { cached gotestsum "$GOTESTSUM_VERSION" build_gotestsum; }

[ $# -gt 0 ] || set -- packages opencl criu runc containerd nerdctl kubelet controlplane cni toolkit checkpointctl lint gotestsum
for part; do
	case $part in
	packages | opencl | criu | runc | containerd | nerdctl | kubelet | controlplane | cni | toolkit | checkpointctl | lint | gotestsum) "setup_$part" ;;
	*) die "unknown part '$part'" ;;
	esac
done
