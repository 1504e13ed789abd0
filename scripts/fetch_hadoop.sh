#!/usr/bin/env bash
# Fetches Hadoop's jars with Maven, and installs MIT Kerberos: the real daemons that tests/hadoop starts.
#
# The jars come to ${XDG_CACHE_HOME:-~/.cache}/sparktrain/hadoop, into a folder named by their version and the digest
# of the pom.xml that lists them; tests.support.hadoop looks there. 100 MB, half a minute, once; does nothing where
# they are. Exit status 2: something is missing that only an administrator can add.
set -euo pipefail
cd "$(dirname "$0")/.."
subject=hadoop
source scripts/common.sh

pom=tests/support/hadoop/pom.xml
version=$(sed -n 's|.*<hadoop.version>\(.*\)</hadoop.version>.*|\1|p' $pom)
all=${XDG_CACHE_HOME:-$HOME/.cache}/sparktrain/hadoop
jars=$all/$version-$(sha256sum $pom | head -c 8)
fetching=$all/.fetching # becomes $jars when it is whole; what a killed run left there is removed by the next
log=$fetching/log

missing_packages() {
  [[ -d $jars ]] || is_there mvn || echo maven
  is_there krb5kdc || echo krb5-kdc
  is_there kadmin.local || echo krb5-admin-server
  is_there kinit || echo krb5-user
}

fetch() {
  quietly mvn --batch-mode --strict-checksums --file $pom dependency:copy-dependencies \
    -DoutputDirectory="$fetching/jars"
}

[[ ! -d $jars || $(missing_packages) ]] || exit 0

mkdir -p "$all"
exec 9>"$all/.lock"
wait_for_lock 9

rm -rf "$fetching"
mkdir "$fetching"
trap 'rm -rf "$fetching"' EXIT

read -ra missing < <(missing_packages | xargs)
[[ ! ${missing[*]} ]] || install_from_debian "${missing[@]}"
[[ ! -d $jars ]] || exit 0
say "fetching the jars of Hadoop $version (half a minute, once)"
fetch
mv "$fetching/jars" "$jars"
say "fetched $jars"
