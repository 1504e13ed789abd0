#!/usr/bin/env bash
# Installs what tests need of Debian: Chromium, which opens the pages of runs, `ip` and `tc`, which make several hosts
# of this machine, and `nft`, which closes one of them off. Does nothing where they are. Exit status 2: something is
# missing that only an administrator can add.
set -euo pipefail

cd "$(dirname "$0")/.."
subject=tools
source scripts/common.sh
log=$(mktemp)
trap 'rm -f "$log"' EXIT

missing=()
is_there chromium || missing+=(chromium)
{ is_there ip && is_there tc; } || missing+=(iproute2)
is_there nft || missing+=(nftables)
[[ ! ${missing[*]} ]] || install_from_debian "${missing[@]}"
