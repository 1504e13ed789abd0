#!/usr/bin/env bash
# Builds Kueue from its Go modules: queues for the pods of tests/kubernetes.
#
# The program, the definitions of its objects and its webhooks come to ${XDG_CACHE_HOME:-~/.cache}/sparktrain/kueue, into
# a folder named by its version; tests.support.kubernetes looks there. Five minutes of a core and 3 GB of disk, once, and
# 100 MB stay; does nothing where they are. It needs Go.
set -euo pipefail
cd "$(dirname "$0")/.."
subject=kueue
source scripts/common.sh

version=0.17.0
all=${XDG_CACHE_HOME:-$HOME/.cache}/sparktrain/kueue
programs=$all/$version
building=$all/.building # with both of Go's caches; what a killed run left there is removed by the next
log=$building/log

[[ ! -d $programs ]] || exit 0
start_building
[[ ! -d $programs ]] || exit 0

build() {
  GOBIN=$building/programs GOMODCACHE=$building/modules GOCACHE=$building/cache GOFLAGS=-modcacherw CGO_ENABLED=0 \
    quietly go install -trimpath -ldflags="-s -w" "sigs.k8s.io/kueue/cmd/kueue@v$version"
}

say "building Kueue $version (five minutes of a core, once)"
build
components=$building/modules/sigs.k8s.io/kueue@v$version/config/components
cp -r "$components/crd/bases" "$building/programs/crd"
cp "$components/webhook/manifests.yaml" "$building/programs/webhooks.yaml"
mv "$building/programs" "$programs"
say "built $programs"
