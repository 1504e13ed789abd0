#!/usr/bin/env bash
# Builds Horovod for the TensorFlow of an environment, and installs it there: what `backend="horovod"` needs. Where the
# environment has torch too, the build has horovod.torch.
#
#   scripts/build_horovod.sh [--nccl] [ENVIRONMENT]
#
# ENVIRONMENT is the folder of a virtual environment that has TensorFlow; .venv by default. With --nccl, members with GPUs of
# their own reduce by NCCL: for TensorFlow with CUDA alone, and with nothing of CUDA on this machine. Otherwise by Gloo alone.
# Builds once, in 2 to 5 minutes of all cores. The wheel stays in ${XDG_CACHE_HOME:-~/.cache}/sparktrain/wheels, under a
# name with all that determines its content. Does nothing where it is installed already. docs/horovod.md explains how
# to build for other machines. Exit status 2: something is missing that only an administrator can add.
set -euo pipefail
cd "$(dirname "$0")/.."
subject=horovod
source scripts/common.sh

script=scripts/build_horovod.sh
nccl=
[[ ${1:-} != --nccl ]] || { nccl=scripts/horovod_nccl.sh && shift; }
[[ $# -le 1 && ${1:-} != -* ]] || { echo "usage: $script [--nccl] [ENVIRONMENT]" >&2 && exit 2; }
venv=$(realpath --no-symlinks "${1:-.venv}")
python=$venv/bin/python
stamp=$venv/.horovod # names the build that is installed and was seen to work
wheels=${XDG_CACHE_HOME:-$HOME/.cache}/sparktrain/wheels
building=$wheels/.building # removed at the end; what a killed build left there is removed by the next
log=$building/log

version=0.28.1
sdist="horovod==$version --hash=sha256:92a43f5a94c43907a56805bad15f19700c62ffc83b7ca483f9e104e229f67ef0"
# CMake 4 refuses the Gloo that Horovod brings along, which is made for a CMake older than 3.5: the last 3.
tools="cmake==3.31.10 --hash=sha256:2f766bb46367e5e0559fa33184653754bce044583a06014dcaebf8e6dff8a1f1 \
  --hash=sha256:a4a5615f31f692c9b9aa8b365704e4b76172348af6fa40e16fea3f118bb01194
setuptools==80.9.0 --hash=sha256:062d34222ad13e0cc312a4c02d73f059e86a4acbfbdea8f8f76b28c99f306922"

# Every x86_64 server since 2013 has these. Left alone, Horovod takes what the building machine has.
[[ $(uname -m) == x86_64 ]] && usual_flags="-mavx -mf16c -mfma" || usual_flags=""
flags=${HOROVOD_BUILD_ARCH_FLAGS:-$usual_flags}

# shellcheck source=scripts/horovod_nccl.sh
[[ ! $nccl ]] || source $nccl

pip() { quietly env PYTHONPATH="$building/tools" "$python" -m pip --no-input --disable-pip-version-check "$@"; }

# Sets label, the version that pip shows, which distinguishes this build from the plain Horovod without the fixes, and one
# with NCCL or torch from one without; torch, its version, or nothing; wheel, its file; installed, a folder that is there
# when it is installed; and site, the folder of packages.
name_the_build() {
  local tensorflow tag
  { read -r tensorflow && read -r torch && read -r tag && read -r site; } < <("$python" - <<'PYTHON' 2>/dev/null
import importlib.metadata, importlib.util, sys, sysconfig
print(importlib.metadata.version("tensorflow").replace("+", "."))
print(importlib.metadata.version("torch").replace("+", ".") if importlib.util.find_spec("torch") else "")
python, platform = f"cp{sys.version_info.major}{sys.version_info.minor}", sysconfig.get_platform()
print(f"{python}-{python}-{platform.replace('-', '_').replace('.', '_')}")
print(sysconfig.get_path("platlib"))
PYTHON
  ) || fail "$venv has no TensorFlow to build for: run \`make setup\`, or name another environment" 2
  [[ ! $nccl ]] || torch= # its build would need the compiler of CUDA
  label=$version+sparktrain.tf$tensorflow${torch:+.torch$torch}${nccl:+.nccl}.b$( (cat $script $nccl && echo "$flags") | sha256sum | head -c 8)
  wheel=$wheels/horovod-$label-$tag.whl
  installed=$site/horovod-$label.dist-info
}

install_compiler() {
  local missing=()
  [[ -x $(command -v g++) ]] || missing+=(g++)
  [[ -x $(command -v make) ]] || missing+=(make)
  [[ ! $nccl || -x $(command -v "$clang") ]] || missing+=("${clang/++/}")
  [[ ! ${missing[*]} ]] || install_from_debian "${missing[@]}"
}

fetch() {
  pip install --require-hashes --no-deps --only-binary :all: --target "$building/tools" -r <(echo "$tools")
  pip download --require-hashes --no-deps --no-binary :all: --no-build-isolation --dest "$building" -r <(echo "$sdist")
  mkdir "$building/source"
  tar --extract --file "$building/horovod-$version.tar.gz" --strip-components 1 --directory "$building/source"
}

# Replaces OLD by NEW in FILE of the source. Fails unless OLD is there exactly once: the source is not the expected one.
replace() {
  "$python" - "$building/source/$1" "$2" "$3" <<'PYTHON' || fail "a fix does not fit the source of Horovod $version"
import pathlib, sys
file, old, new = pathlib.Path(sys.argv[1]), *sys.argv[2:]
text = file.read_text()
if text.count(old) != 1:
    sys.exit(f"horovod: {file} has this {text.count(old)} times, not once:\n{old}")
file.write_text(text.replace(old, new))
PYTHON
}

apply_fixes() {
  # Operations inside XLA programs, off unless asked for: their headers have moved since TensorFlow 2.16, and they no
  # longer compile.
  # shellcheck disable=SC2016 # the variable is CMake's
  replace horovod/tensorflow/CMakeLists.txt \
    'list(APPEND TF_SOURCES "${PROJECT_SOURCE_DIR}/horovod/tensorflow/xla_mpi_ops.cc")' ''

  # The headers of torch need C++20. Gloo's timeout is a constant that C++14 defines once and later C++ in each file: the
  # copy of Gloo for TensorFlow is compiled as C++17. A toolkit of CUDA on this machine would have the build want all of it.
  replace horovod/torch/CMakeLists.txt 'set(CMAKE_CXX_STANDARD 14)' 'set(CMAKE_CXX_STANDARD 20)'
  replace horovod/torch/CMakeLists.txt 'PYTORCH_LINKER_LIBS gloo)' 'PYTORCH_LINKER_LIBS compatible17_gloo)'
  replace cmake/Modules/FindPytorch.cmake '(CUDA_HOME is not None)' 'False'

  # The ranks are gathered into a vector of size 0: a write past its end, and the stall inspector, which goes over this
  # vector, sees no rank that could be missing. A gang with one member stuck outside a collective would wait for ever.
  replace horovod/common/gloo/gloo_controller.cc 'global_ranks_.reserve(size_);' 'global_ranks_.resize(size_);'

  # Only the first context of Gloo takes the network interface that it is to use. Those of process sets, which all collectives
  # go through, take the address of the host's name: a loopback address on many hosts, or none, and then Gloo reads what it
  # has not got and the process ends by SIGSEGV.
  replace horovod/common/gloo/gloo_context.cc 'const std::vector<int>& registered_ranks) {
  assert(global_context.IsEnabled());
' 'const std::vector<int>& registered_ranks) {
  assert(global_context.IsEnabled());
  gloo_iface_ = global_context.gloo_iface_;
'

  # A peer that does not connect makes Gloo throw in Horovod's own thread, where nothing catches: the process would end by
  # SIGABRT. Caught, hvd.init() raises ValueError, and after hvd.shutdown() the process may try again.
  replace horovod/common/operations.cc '#if HAVE_GLOO
#if HAVE_MPI
  if (global_mpi_context.IsEnabled()) {
    // Initialize gloo' '#if HAVE_GLOO
  try {
#if HAVE_MPI
  if (global_mpi_context.IsEnabled()) {
    // Initialize gloo'
  replace horovod/common/operations.cc '    state.process_set_table.Initialize(global_gloo_context);
  }
#endif' '    state.process_set_table.Initialize(global_gloo_context);
  }
  } catch (const std::exception& ex) {
    LOG(ERROR) << "Horovod could not be initialized: " << ex.what();
    if (state.control_operation == LibType::GLOO) {
      state.process_set_table.Finalize(global_gloo_context, SHUT_DOWN_ERROR);
    }
    global_gloo_context.Finalize();
    state.initialization_failed = true;
    return;
  }
#endif'
  replace horovod/common/operations.cc '    horovod_global.shut_down = false;
    horovod_global.initialization_done = false;' '    horovod_global.shut_down = false;
    horovod_global.initialization_failed = false;
    horovod_global.initialization_done = false;'
}

# In an environment of its own: a HOROVOD_... or CXXFLAGS of the caller's would change the wheel, and not its name.
compile() {
  local with_torch=HOROVOD_WITHOUT_PYTORCH=1
  [[ ! $torch ]] || with_torch=HOROVOD_WITH_PYTORCH=1
  local more=(LDFLAGS=-Wl,--strip-debug)
  if [[ $nccl ]]; then cuda_environment; fi
  quietly env --ignore-environment PATH="$PATH" HOME="$HOME" TMPDIR="$building" PYTHONPATH="$building/tools" \
    HOROVOD_CMAKE="$building/tools/cmake/data/bin/cmake" MAKEFLAGS="-j$(nproc)" \
    CXXFLAGS="-ffile-prefix-map=$building/source/=" "${more[@]}" \
    HOROVOD_WITH_TENSORFLOW=1 "$with_torch" HOROVOD_WITHOUT_MXNET=1 \
    HOROVOD_WITH_GLOO=1 HOROVOD_WITHOUT_MPI=1 \
    HOROVOD_BUILD_ARCH_FLAGS="$flags" HOROVOD_LOCAL_VERSION="${label#*+}" \
    "$python" -m pip wheel --no-input --disable-pip-version-check --no-index --no-deps --no-build-isolation \
    --wheel-dir "$building" "$building/source"
}

# Loads TensorFlow and the wheel from FOLDER, or the installed one, which finds NCCL by itself.
check() {
  local beside=
  [[ ! $1 || ! $nccl ]] || beside=$site/nvidia/nccl/lib:$site/nvidia/cuda_runtime/lib
  quietly env PYTHONPATH="$1" LD_LIBRARY_PATH="$beside" NCCL="${nccl:+yes}" TORCH="$torch" "$python" - <<'PYTHON'
import os
import horovod.tensorflow as hvd
assert hvd.gloo_built(), "built without Gloo"
assert not hvd.mpi_built(), "built with MPI"
assert bool(hvd.nccl_built()) is (os.environ["NCCL"] == "yes"), "with NCCL where it should be without, or without"
if os.environ["TORCH"]:
    import horovod.torch
PYTHON
}

build() {
  if [[ $nccl ]]; then check_cuda_needs; fi
  install_compiler
  say "building $(basename "$wheel") (2 to 5 minutes, once)"
  fetch
  apply_fixes
  if [[ $nccl ]]; then
    apply_cuda_fixes
    fetch_cuda
    compile_kernels
  fi
  compile
  pip install --no-index --no-deps --target "$building/check" "$building/${wheel##*/}"
  check "$building/check"
  mv "$building/${wheel##*/}" "$wheel"
}

exec 8<scripts
wait_for_lock 8
name_the_build
[[ ! -f $stamp || $(<"$stamp") != "$label" || ! -d $installed ]] || exit 0

mkdir -p "$wheels"
exec 9>"$wheels/.lock"
wait_for_lock 9
rm -rf "$building"
mkdir "$building"
trap 'rm -rf "$building"' EXIT
export TMPDIR=$building # what pip leaves when it is killed is removed with the rest

[[ -f $wheel ]] || build
rm -f "$stamp"
pip install --no-index --no-deps --force-reinstall "$wheel"
check ""
echo "$label" >"$stamp"
say "installed $wheel"
