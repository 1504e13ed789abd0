#!/usr/bin/env bash
# Fetches Hadoop's jars with Maven, and installs MIT Kerberos: the real daemons that tests/hadoop starts.
#
# The jars come to ${XDG_CACHE_HOME:-~/.cache}/sparktrain/hadoop, into a folder named by their version and the digest
# of the pom.xml that lists them; tests.support.hadoop looks there. 100 MB, half a minute, once; does nothing where
# they are. Exit status 2: something is missing that only an administrator can add.
set -euo pipefail
cd "$(dirname "$0")/.."

pom=tests/support/hadoop/pom.xml
version=$(sed -n 's|.*<hadoop.version>\(.*\)</hadoop.version>.*|\1|p' $pom)
all=${XDG_CACHE_HOME:-$HOME/.cache}/sparktrain/hadoop
jars=$all/$version-$(sha256sum $pom | head -c 8)
fetching=$all/.fetching # becomes $jars when it is whole; what a killed run left there is removed by the next

say() { echo "hadoop: $*"; }

fail() {
  echo "hadoop: $1" >&2
  exit "${2:-1}"
}

quietly() {
  "$@" >"$fetching/log" 2>&1 || {
    tail -n 50 "$fetching/log" >&2
    fail "${FUNCNAME[1]} failed: the last lines of its output are above"
  }
}

wait_for_lock() {
  flock --nonblock "$1" || {
    say "waiting for another run"
    flock "$1"
  }
}

# A user's PATH may lack the folders of daemons, which tests know.
is_there() { [[ -x $(PATH=$PATH:/usr/sbin:/sbin command -v "$1") ]]; }

missing_packages() {
  [[ -d $jars ]] || is_there mvn || echo maven
  is_there krb5kdc || echo krb5-kdc
  is_there kadmin.local || echo krb5-admin-server
  is_there kinit || echo krb5-user
}

install_missing_packages() {
  local missing
  missing=$(missing_packages | xargs)
  [[ $missing ]] || return 0
  [[ $EUID -eq 0 && -x $(command -v apt-get) ]] ||
    fail "install these Debian packages first, as root: apt-get install $missing" 2
  say "installing $missing with apt-get"
  export DEBIAN_FRONTEND=noninteractive
  quietly apt-get update
  # shellcheck disable=SC2086 # one word for each package
  quietly apt-get install --yes --no-install-recommends -o DPkg::Lock::Timeout=120 $missing
}

fetch() {
  quietly mvn --batch-mode --strict-checksums --file $pom dependency:copy-dependencies \
    -DoutputDirectory="$fetching/jars"
}

[[ ! -d $jars || $(missing_packages) ]] || exit 0

# Two runs of make may start at once, and checkouts share the jars: the second waits for the first.
mkdir -p "$all"
exec 9>"$all/.lock"
wait_for_lock 9

rm -rf "$fetching"
mkdir "$fetching"
trap 'rm -rf "$fetching"' EXIT

install_missing_packages
[[ ! -d $jars ]] || exit 0
say "fetching the jars of Hadoop $version (half a minute, once)"
fetch
mv "$fetching/jars" "$jars"
say "fetched $jars"
