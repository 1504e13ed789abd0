#!/usr/bin/env bash
# Builds Kubernetes' daemons and etcd from their Go modules, and installs containerd: what tests/kubernetes starts.
#
# The programs come to ${XDG_CACHE_HOME:-~/.cache}/sparktrain/kubernetes, into a folder named by their version and the
# digest of what scripts/kubernetes has; tests.support.kubernetes looks there. 9 to 14 minutes of a core and 4 GB of disk,
# once, and 450 MB stay; does nothing where they are. Exit status 2: something is missing that only an administrator can
# add.
set -euo pipefail
cd "$(dirname "$0")/.."
subject=kubernetes
source scripts/common.sh

sources=(scripts/kubernetes/go.mod scripts/kubernetes/go.sum scripts/kubernetes/pause/main.go)
version=$(sed -n 's|.*k8s.io/kubernetes v\([0-9.]*\).*|\1|p' "${sources[0]}")
go_version=$(sed -n 's|^go \([0-9]*\.[0-9]*\).*|\1|p' "${sources[0]}")
all=${XDG_CACHE_HOME:-$HOME/.cache}/sparktrain/kubernetes
programs=$all/$version-$(cat "${sources[@]}" | sha256sum | head -c 8)
building=$all/.building # with both of Go's caches; what a killed run left there is removed by the next
log=$building/log

missing_packages() {
  is_there containerd || echo containerd
  is_there runc || echo runc
  [[ -x /usr/lib/cni/bridge ]] || echo containernetworking-plugins
  is_there ip || echo iproute2
}

check_machine() {
  [[ $EUID -eq 0 ]] || fail "nodes need root, for their containers and networks: run it as root" 2
  [[ -f /sys/fs/cgroup/cgroup.controllers || -d /sys/fs/cgroup/memory ]] ||
    fail "this machine has no cgroup of memory at /sys/fs/cgroup, which a kubelet needs: mount it, or use a machine with it" 2
  unshare --pid --fork --mount --net true 2>/dev/null ||
    fail "this machine allows no new namespaces, and nodes are some: give the container CAP_SYS_ADMIN, or use another machine" 2
}

check_go() {
  local installed
  installed=$(go env GOVERSION 2>/dev/null | sed 's/^go//') || true
  [[ $installed ]] || fail "there is no Go: install Go $go_version or newer from https://go.dev/dl, and put it on the PATH" 2
  printf '%s\n' "$go_version" "$installed" | sort --check=silent --version-sort ||
    fail "Go is $installed, and Kubernetes $version needs $go_version or newer: install it from https://go.dev/dl" 2
}

build() {
  local of=k8s.io/component-base/version
  cd scripts/kubernetes
  GOMODCACHE=$building/modules GOCACHE=$building/cache GOFLAGS=-modcacherw CGO_ENABLED=0 quietly go build \
    -trimpath -o "$building/programs/" \
    -ldflags="-s -w -X $of.gitVersion=v$version -X $of.gitMajor=${version%%.*} -X $of.gitMinor=$(cut -d. -f2 <<<"$version")" \
    tool ./pause
  mv "$building/programs/server" "$building/programs/etcd"
}

check_machine
[[ ! -d $programs || $(missing_packages) ]] || exit 0

start_building
read -ra missing < <(missing_packages | xargs)
[[ ! ${missing[*]} ]] || install_from_debian "${missing[@]}"
[[ ! -d $programs ]] || exit 0
check_go
say "building Kubernetes $version (9 to 14 minutes of a core, once)"
build
mv "$building/programs" "$programs"
say "built $programs"
