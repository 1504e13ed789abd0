# What `scripts/build_horovod.sh --nccl` needs beyond the plain build: sourced by it, with its variables and functions.
#
# Horovod's few CUDA kernels are compiled by clang with CUDA's parts from PyPI: NVIDIA's packages there have no nvcc of
# CUDA 12, for which TensorFlow is built. Nothing here needs a GPU or its driver.
# shellcheck shell=bash disable=SC2154 # the variables of the script that sources this

clang=clang++-19
# For GPUs since Volta; those after Hopper compile the last one's PTX when they load it.
gpus="--cuda-gpu-arch=sm_70 --cuda-gpu-arch=sm_75 --cuda-gpu-arch=sm_80 --cuda-gpu-arch=sm_86 --cuda-gpu-arch=sm_89 \
--cuda-gpu-arch=sm_90 --no-cuda-include-ptx=all --cuda-include-ptx=sm_90"
# ptxas, headers and the runtime of CUDA 12.5, as TensorFlow's; and fatbinary, which only the package of CUDA 13 has.
cuda="nvidia-cuda-nvcc-cu12==12.5.82 --hash=sha256:b03e545b8e8c3ce7ebcd7fc44063180ff52ff01d064ece2127ed90a04ef12cd0
nvidia-cuda-runtime-cu12==12.5.82 --hash=sha256:3e79a060e126df40fd3a068f3f787eb000fa51b251ec6cd97d09579632687115
nvidia-cuda-cccl-cu12==12.5.39.post1 --hash=sha256:85b915114b3d883caf96e557017066fb83877ed13d334ea02b135f932b41cc4b"
fatbinary="nvidia-cuda-nvcc==13.5.37 --hash=sha256:f5c4f7ead5d964fb4af42bbf1e6d3ec3c1e6e9d83b53749f691d387e7fcaa3a7"

check_cuda_needs() {
  [[ $(uname -m) == x86_64 ]] || fail "--nccl builds for x86_64 alone, and this machine is $(uname -m)" 2
  local library version
  for library in nccl/lib/libnccl.so.2 cuda_runtime/lib/libcudart.so.12; do
    [[ -e $site/nvidia/$library ]] ||
      fail "--nccl needs $library in $venv, where it is used too: $python -m pip install 'tensorflow[and-cuda]'" 2
  done
  version=$("$python" -c 'import tensorflow as tf; print(tf.sysconfig.get_build_info().get("cuda_version", "none"))' \
    2>/dev/null) || fail "TensorFlow cannot be imported in $venv"
  [[ $version == 12.* ]] ||
    fail "--nccl builds for CUDA 12, and the TensorFlow of $venv is built for CUDA: $version; take tensorflow 2.21" 2
}

# Sets kit, a folder as CUDA's installer would make it, of the parts that clang looks for.
fetch_cuda() {
  kit=$building/cuda
  pip install --require-hashes --no-deps --only-binary :all: --target "$building/cuda12" -r <(echo "$cuda")
  pip install --require-hashes --no-deps --only-binary :all: --target "$building/cuda13" -r <(echo "$fatbinary")
  mkdir -p "$kit/bin" "$kit/include" "$kit/lib64"
  local part
  for part in cuda_nvcc cuda_runtime cuda_cccl; do
    cp -rf "$building/cuda12/nvidia/$part/include/." "$kit/include"
  done
  cp -r "$building/cuda12/nvidia/cuda_nvcc/nvvm" "$kit"
  cp "$building/cuda12/nvidia/cuda_nvcc/bin/ptxas" "$kit/bin"
  cp "$building/cuda12/nvidia/cuda_runtime/lib/libcudart.so.12" "$kit/lib64"
  cp "$building/cuda13/nvidia/cu13/bin/fatbinary" "$kit/bin/fatbinary-13"
  : >"$kit/include/curand_mtgp32_kernel.h" # clang includes it always, and these kernels draw no random numbers
  cat >"$kit/bin/fatbinary" <<'SH'
#!/bin/sh
# clang passes the options of CUDA 12 to the fatbinary of CUDA 13. Uncompressed, as drivers of CUDA 12 read it.
for word; do
  shift
  case $word in
    -image=profile=sm_* | --image=profile=sm_*) word="--image3=kind=elf,sm=${word#*profile=sm_}" ;;
    -image=profile=compute_* | --image=profile=compute_*) word="--image3=kind=ptx,sm=${word#*profile=compute_}" ;;
  esac
  set -- "$@" "$word"
done
exec "$0-13" --compress-mode=none "$@"
SH
  chmod +x "$kit"/bin/*
  mkdir "$building/nccl"
  ln -s "$site/nvidia/nccl/lib/libnccl.so.2" "$building/nccl/libnccl.so"
}

compile_kernels() {
  # shellcheck disable=SC2086 # one word for each option
  quietly "$clang" -x cuda --cuda-path="$kit" $gpus -Wno-unknown-cuda-version -O3 -fPIC -std=c++17 \
    -ffile-prefix-map="$building/source/=" -c "$building/source/horovod/common/ops/cuda/cuda_kernels.cu" \
    -o "$building/cuda_kernels.o"
  ar rcs "$kit/lib64/libhorovod_kernels.a" "$building/cuda_kernels.o"
}

apply_cuda_fixes() {
  # TensorFlow no longer exports the function that Horovod declares here; its stream knows CUDA's.
  replace horovod/tensorflow/mpi_ops.cc '// Forward declaration of AsGpuStreamValue
namespace stream_executor {
namespace gpu {
GpuStreamHandle AsGpuStreamValue(Stream* stream);
} // namespace stream_executor
} // namespace gpu
#if TENSORFLOW_VERSION >= 2011000000
#include "tensorflow/compiler/xla/stream_executor/stream.h"
#else
#include "tensorflow/stream_executor/stream.h"
#endif // TENSORFLOW_VERSION >= 2011000000' '#include "xla/stream_executor/stream.h"
namespace stream_executor {
namespace gpu {
static GpuStreamHandle AsGpuStreamValue(Stream* stream) {
  return static_cast<GpuStreamHandle>(stream->platform_specific_handle().stream);
}
} // namespace gpu
} // namespace stream_executor'

  # CUDA and the kernels come from the kit; CMake would look for nvcc.
  replace CMakeLists.txt 'project(horovod CXX)' 'project(horovod CXX)
set(CMAKE_SKIP_RPATH ON) # it would name folders of this build'
  # shellcheck disable=SC2016 # the variables are CMake's
  replace CMakeLists.txt 'find_package(CUDAToolkit REQUIRED)
    include_directories(SYSTEM ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES})' 'include_directories(SYSTEM "$ENV{CUDA_KIT}/include")'
  cat >"$building/source/horovod/common/ops/cuda/CMakeLists.txt" <<'CMAKE'
foreach(name horovod_cuda_kernels compatible_horovod_cuda_kernels)
    add_library(${name} STATIC IMPORTED GLOBAL)
    set_target_properties(${name} PROPERTIES IMPORTED_LOCATION "$ENV{CUDA_KIT}/lib64/libhorovod_kernels.a"
        INTERFACE_LINK_LIBRARIES "$ENV{CUDA_KIT}/lib64/libcudart.so.12")
endforeach()
CMAKE
}

# Sets more, what the build needs in its environment. The library finds NCCL and the runtime beside it in site-packages.
cuda_environment() {
  # shellcheck disable=SC2016 # the linker's own variable
  more=(HOROVOD_GPU=CUDA HOROVOD_GPU_OPERATIONS=NCCL HOROVOD_NCCL_LINK=SHARED CUDA_KIT="$kit"
    HOROVOD_NCCL_INCLUDE="$site/nvidia/nccl/include" HOROVOD_NCCL_LIB="$building/nccl"
    LDFLAGS='-Wl,--strip-debug -Wl,-rpath,$ORIGIN/../../nvidia/nccl/lib:$ORIGIN/../../nvidia/cuda_runtime/lib')
}
