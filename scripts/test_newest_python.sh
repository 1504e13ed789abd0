#!/usr/bin/env bash
# The innermost ring on the newest Python that pyproject.toml declares: that of Debian 13, in a folder that debootstrap
# fills once (root; a minute, 5 GB with the packages). `make test` runs on this machine's Python, the oldest in CI.
set -euo pipefail
cd "$(dirname "$0")/.."
subject=test-newest-python
source scripts/common.sh

suite=trixie
root=${XDG_CACHE_HOME:-$HOME/.cache}/sparktrain/debian-$suite
log=$root.log
packages=python3,python3-venv,ca-certificates,git,libgomp1,make,procps

[[ $EUID -eq 0 ]] || fail "debootstrap and chroot need root: run it as root, or make test-unit with a .venv of that Python" 2

fetch() {
  is_there debootstrap || install_from_debian debootstrap
  rm -rf "$root" "$root.unfinished"
  mkdir -p "$root.unfinished"
  say "fetching Debian's $suite into $root (a minute)"
  quietly debootstrap --variant=minbase --include="$packages" "$suite" "$root.unfinished"
  mv "$root.unfinished" "$root"
}

# Two runs at once would replace each other's sources.
mkdir -p "${root%/*}"
exec 9>"$root.lock"
flock 9

[[ -d $root/src || -x $root/usr/bin/python3 ]] || fetch
mkdir -p "$root/src"
find "$root/src" -mindepth 1 -maxdepth 1 ! -name .venv -exec rm -rf {} +
git ls-files -z --cached --others --exclude-standard | tar --null --ignore-failed-read -cf - -T - | tar -xf - -C "$root/src"
# Tests read the history of nothing, but some ask git which files are the tree's.
git -C "$root/src" init -q
git -C "$root/src" add -A
cp /etc/resolv.conf "$root/etc/resolv.conf"
cat /etc/ssl/certs/ca-certificates.crt >"$root/etc/ssl/certs/ca-certificates.crt"

# The mounts are those of a namespace of its own: they end with it, also when it is killed.
inside='mount --rbind /dev "$0/dev" && mount --rbind /sys "$0/sys" && mount -t proc proc "$0/proc" && exec chroot "$0" "${@}"'
# A cache of packages would double the folder, and serves only one change of the lock a week.
settings=(HOME=/root LANG=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin UV_NO_CACHE=1 PIP_NO_CACHE_DIR=1)
[[ ! ${PIP_CERT:-} ]] || settings+=(PIP_CERT=/etc/ssl/certs/ca-certificates.crt)
run() { unshare --mount --pid --fork --propagation private sh -c "$inside" "$root" env -i "${settings[@]}" "$@"; }

run make -C /src packages
run /src/.venv/bin/python -c 'import sys; print("test-newest-python: Python", sys.version.partition(" ")[0])'
run /src/scripts/test_unit.sh -m "not all and not rig and not torch" "$@"
