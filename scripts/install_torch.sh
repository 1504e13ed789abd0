#!/usr/bin/env bash
# Installs torch for the tests that need it, in an environment of its own: what `make test-torch` runs in.
#
#   scripts/install_torch.sh [ENVIRONMENT [TORCH_ENVIRONMENT]]
#
# TORCH_ENVIRONMENT (.venv-torch) has the packages of constraints-torch.txt alone, and sees those of ENVIRONMENT (.venv). The
# wheel of torch on PyPI is made for CUDA, and does not load without the libraries that it links; the lock has these, and
# neither Triton nor what only GPUs load later. Does nothing where all is there. Exit status 2: ENVIRONMENT is
# missing, or the machine is no x86_64.
set -euo pipefail
cd "$(dirname "$0")/.."
subject=torch
source scripts/common.sh

[[ $# -le 2 && ${1:-} != -* ]] || { echo "usage: scripts/install_torch.sh [ENVIRONMENT [TORCH_ENVIRONMENT]]" >&2 && exit 2; }
lock=constraints-torch.txt
main=$(realpath --no-symlinks "${1:-.venv}")
torch=$(realpath --no-symlinks "${2:-.venv-torch}")
stamp=$torch/.complete # what is installed, and for which environment

[[ $(uname -m) == x86_64 ]] || fail "$lock has packages for x86_64 alone, and this machine is $(uname -m)" 2
[[ -x $main/bin/python ]] || fail "$main has no Python: run \`make setup\`, or name another environment" 2
[[ -x $main/bin/uv ]] || fail "$main has no uv: run \`make setup\`, or install it there" 2
site=$("$main/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
content=$(cat "$lock" scripts/install_torch.sh <(echo "$site") | sha256sum)

# Two runs of make may start at once: the second waits for the first.
exec 7<scripts
flock 7
[[ ! -f $stamp || $(<"$stamp") != "$content" ]] || exit 0

say "installing torch into $torch (some minutes, once)"
rm -rf "$torch"
"$main/bin/python" -m venv --without-pip "$torch"
"$main/bin/uv" pip install --quiet --native-tls --python "$torch/bin/python" --require-hashes --no-deps --only-binary :all: \
  -r "$lock" || fail "the packages of $lock cannot be installed: see above"
# `addsitedir` in place of the bare path, which would leave out the .pth files there: that of an editable sparktrain.
own=$("$torch/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
echo "import site; site.addsitedir('$site')" >"$own/environment-beside.pth"
"$torch/bin/python" -W error -c 'import sparktrain, torch; torch.ones(2).sum()' || fail "torch is installed, and does not work: see above"
echo "$content" >"$stamp"
