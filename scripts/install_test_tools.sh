#!/usr/bin/env bash
# Installs what tests need of Debian: Chromium, which opens the pages of runs, `ip` and `tc`, which make several hosts
# of this machine, and `nft`, which closes one of them off. Does nothing where they are. Exit status 2: something is
# missing that only an administrator can add.
set -euo pipefail

log=$(mktemp)
trap 'rm -f "$log"' EXIT

fail() {
  cat "$log" >&2
  echo "tools: $1" >&2
  exit "${2:-1}"
}

# A user's PATH may lack the folders of administrators' programs.
is_there() { [[ -x $(PATH=$PATH:/usr/sbin:/sbin command -v "$1") ]]; }

missing=()
is_there chromium || missing+=(chromium)
{ is_there ip && is_there tc; } || missing+=(iproute2)
is_there nft || missing+=(nftables)
[[ ${missing[*]} ]] || exit 0
[[ $EUID -eq 0 && -x $(command -v apt-get) ]] ||
  fail "install these Debian packages first, as root: apt-get install ${missing[*]}" 2
echo "tools: installing ${missing[*]} with apt-get (half a minute)"
export DEBIAN_FRONTEND=noninteractive
apt-get update >"$log" 2>&1 || fail "apt-get update failed"
apt-get install --yes --no-install-recommends -o DPkg::Lock::Timeout=120 "${missing[@]}" >"$log" 2>&1 ||
  fail "apt-get install failed"
