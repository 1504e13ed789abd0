#!/usr/bin/env bash
# Builds Kubeflow's Spark operator from its Go module: it starts the application of conf/kubernetes for tests/kubernetes.
#
# The program and the definitions of its objects come to ${XDG_CACHE_HOME:-~/.cache}/sparktrain/spark-operator, into a
# folder named by its version; tests.support.kubernetes looks there. Three minutes of a core and 3 GB of disk, once, and
# 60 MB stay; does nothing where they are. It needs Go.
set -euo pipefail
cd "$(dirname "$0")/.."
subject=spark-operator
source scripts/common.sh

version=2.5.0
all=${XDG_CACHE_HOME:-$HOME/.cache}/sparktrain/spark-operator
programs=$all/$version
building=$all/.building # with both of Go's caches; what a killed run left there is removed by the next
log=$building/log

[[ ! -d $programs ]] || exit 0
start_building
[[ ! -d $programs ]] || exit 0
module=$building/modules/github.com/kubeflow/spark-operator/v2@v$version

# `go install` refuses a module that replaces others.
build() {
  export GOMODCACHE=$building/modules GOCACHE=$building/cache GOFLAGS=-modcacherw CGO_ENABLED=0
  (cd "$building" && quietly go mod download "github.com/kubeflow/spark-operator/v2@v$version")
  (cd "$module" && quietly go build -trimpath -ldflags="-s -w" -o "$building/programs/spark-operator" ./cmd/operator)
}

say "building the Spark operator $version (three minutes of a core, once)"
build
cp -r "$module/config/crd/bases" "$building/programs/crd"
mv "$building/programs" "$programs"
say "built $programs"
