# What scripts that install and build share: sourced by them, with `subject`, the first word of their lines, and
# `log`, the file of a command's output.
# shellcheck shell=bash disable=SC2154 # the variables of the script that sources this

say() { echo "$subject: $*"; }

fail() {
  echo "$subject: $1" >&2
  exit "${2:-1}"
}

# Shows the end of a command's output where it fails.
quietly() {
  "$@" >"$log" 2>&1 || {
    tail -n 100 "$log" >&2
    fail "${FUNCNAME[1]} failed: the last lines of its output are above"
  }
}

# Two runs of make may start at once, and checkouts share what they build: the second waits for the first.
wait_for_lock() {
  flock --nonblock "$1" || {
    say "waiting for another run"
    flock "$1"
  }
}

# Waits for its turn in the folder `all`, and empties the folder `building` in it, which the script's end removes.
start_building() {
  mkdir -p "$all"
  exec 9>"$all/.lock"
  wait_for_lock 9
  rm -rf "$building"
  mkdir -p "$building/programs"
  trap 'rm -rf "$building"' EXIT
}

# A user's PATH may lack the folders of daemons and of administrators' programs.
is_there() { [[ -x $(PATH=$PATH:/usr/sbin:/sbin command -v "$1") ]]; }

# Exit status 2: only an administrator can add what is missing.
install_from_debian() {
  [[ $EUID -eq 0 && -x $(command -v apt-get) ]] ||
    fail "install these Debian packages first, as root: apt-get install $*" 2
  say "installing $* with apt-get"
  export DEBIAN_FRONTEND=noninteractive
  quietly apt-get update
  quietly apt-get install --yes --no-install-recommends -o DPkg::Lock::Timeout=120 "$@"
}
