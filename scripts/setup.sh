#!/usr/bin/env bash
# Prepares a checkout: Java, the example's images, and .venv with the locked packages and the `sparktrain` command.
# Run by `make`; does nothing where all is there. `setup.sh demo` installs the packages of `make demo` alone, a quarter of
# all; `setup.sh packages` installs all packages, and neither Java nor images. Exit status 2: something is missing that
# only an administrator can add.
set -euo pipefail
cd "$(dirname "$0")/.."
subject=setup
source scripts/common.sh
log=$(mktemp)
trap 'rm -f "$log"' EXIT

venv=.venv
stamp=$venv/.complete
unfinished=$venv/.unfinished # there while packages are installed: a .venv that has it was interrupted, and is rebuilt
images=/usr/share/datasets/fashion-mnist
content=${1:-all}
lock=constraints.txt
[[ $content != demo ]] || lock=constraints-demo.txt

java_is_there() {
  local version
  version=$("${JAVA_HOME:+$JAVA_HOME/bin/}java" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p') || return 1
  [[ ${version:-0} -ge 17 ]]
}

python_for_venv() {
  local python
  for python in python3.11 python3.12 python3.13 python3; do
    if "$python" -c 'import ensurepip, sys, venv; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null; then
      echo "$python"
      return
    fi
  done
  return 1
}

missing_packages() {
  if [[ $content != packages ]]; then
    java_is_there || echo openjdk-17-jdk-headless
    [[ -d $images ]] || echo dataset-fashion-mnist
  fi
  [[ -x $venv/bin/python ]] || python_for_venv >/dev/null || echo python3 python3-venv
}

install_missing_packages() {
  local missing
  [[ ! ${JAVA_HOME:-} || $content == packages ]] || java_is_there || fail "JAVA_HOME ($JAVA_HOME) is no Java 17 or later: correct or unset it" 2
  read -ra missing < <(missing_packages | xargs)
  [[ ${missing[*]} ]] || return 0
  install_from_debian "${missing[@]}"
  [[ ! $(missing_packages) ]] || fail "installed, but still not found: $(missing_packages | xargs)" 2
}

install_locked_packages() {
  rm -f "$stamp"
  if [[ -e $unfinished ]] || ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
    say "making $venv"
    rm -rf "${venv:?}/bin" "$venv" # bin first: what a second interruption leaves has no pip, and is not taken for whole
    quietly "$(python_for_venv)" -m venv "$venv"
  fi
  touch "$unfinished"
  say "installing $(grep -c == "$lock") locked packages into $venv (a minute or two the first time)"
  quietly scripts/install_locked.sh "$venv" "$lock"
  digest_of "$lock" >"$stamp"
  rm "$unfinished"
}

digest_of() { cat "$1" pyproject.toml | sha256sum; }

# Whether .venv has all packages of a lock, or of one that has more.
is_installed() {
  local lock_file
  [[ -x $venv/bin/python && -f $stamp ]] || return 1
  for lock_file in "$@"; do
    [[ $(<"$stamp") != "$(digest_of "$lock_file")" ]] || return 0
  done
  return 1
}

exec 9<scripts
wait_for_lock 9

install_missing_packages
is_installed "$lock" constraints.txt || install_locked_packages
