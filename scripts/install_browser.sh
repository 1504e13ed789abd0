#!/usr/bin/env bash
# Installs Debian's Chromium, in which tests open the pages of runs. Does nothing where it is.
# Exit status 2: it is missing, and only an administrator can add it.
set -euo pipefail

log=$(mktemp)
trap 'rm -f "$log"' EXIT

fail() {
  cat "$log" >&2
  echo "browser: $1" >&2
  exit "${2:-1}"
}

[[ -x /usr/bin/chromium ]] && exit
[[ $EUID -eq 0 && -x $(command -v apt-get) ]] ||
  fail "install this Debian package first, as root: apt-get install chromium" 2
echo "browser: installing chromium with apt-get (half a minute)"
export DEBIAN_FRONTEND=noninteractive
apt-get update >"$log" 2>&1 || fail "apt-get update failed"
apt-get install --yes --no-install-recommends -o DPkg::Lock::Timeout=120 chromium >"$log" 2>&1 ||
  fail "apt-get install failed"
