#!/usr/bin/env bash
# Fetches the schema of Kubeflow's SparkApplication from its Go module: tests/kubernetes checks conf/kubernetes against it.
#
# The file comes to ${XDG_CACHE_HOME:-~/.cache}/sparktrain/spark-operator, once; does nothing where it is. It needs Go.
set -euo pipefail

version=2.5.0
digest=ecd9c14fcadb9d5f8ced4c4ee31920548ea53a892e0a69c3e43aa758bfca6d94
schema=${XDG_CACHE_HOME:-$HOME/.cache}/sparktrain/spark-operator/$version.yaml
[[ ! -f $schema ]] || exit 0

fetching=$(mktemp --directory)
trap 'rm -rf "$fetching"' EXIT
cd "$fetching"
echo "spark-operator: fetching the schema of $version"
GOMODCACHE=$fetching GOFLAGS=-modcacherw go mod download "github.com/kubeflow/spark-operator/v2@v$version"
found=$fetching/github.com/kubeflow/spark-operator/v2@v$version/config/crd/bases/sparkoperator.k8s.io_sparkapplications.yaml
sha256sum --check --quiet <<<"$digest  $found"
mkdir -p "$(dirname "$schema")"
mv "$found" "$schema"
