#!/bin/sh
# Finds the GPUs of an executor for Spark: spark.executor.resource.gpu.discoveryScript=/path/to/gpu-discovery.sh
#
# Where nothing isolates GPUs, as under YARN without its GPU plugin and cgroups, every executor of a host sees all of
# them, and a script that lists them gives each executor the same ones. This one hands each GPU to one executor at a
# time: it records the owner until that executor's process has ended.
#
#   SPARKTRAIN_GPUS           GPUs of an executor: spark.executor.resource.gpu.amount (default 1)
#   SPARKTRAIN_GPU_ADDRESSES  addresses of this host's GPUs, such as "0 1" (default: what nvidia-smi lists)
#   SPARKTRAIN_GPU_CLAIMS     folder of this host, the same for all its executors (default: one of the user's in /tmp)
#
# Set them for executors by spark.executorEnv.NAME=value.
set -eu

wanted=${SPARKTRAIN_GPUS:-1}
addresses=${SPARKTRAIN_GPU_ADDRESSES:-$(nvidia-smi --query-gpu=index --format=csv,noheader)}
claims=${SPARKTRAIN_GPU_CLAIMS:-/tmp/sparktrain-gpus-$(id -u)}

# A process by its id and the time of its start: another process may have the same id later.
identity() {
    sed -n 's/^\([0-9]*\) (.*) \(.*\)$/\1 \2/p' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f1,21
}

umask 077
mkdir -p "$claims"
exec 9>"$claims/lock"
flock 9
mine=$(identity "$PPID")
found=""
count=0
for address in $addresses; do
    [ "$count" -lt "$wanted" ] || break
    owner=$(cat "$claims/$address" 2>/dev/null || true)
    if [ -z "$owner" ] || [ "$owner" = "$mine" ] || [ "$owner" != "$(identity "${owner%% *}")" ]; then
        echo "$mine" >"$claims/$address"
        found="$found${found:+,}\"$address\""
        count=$((count + 1))
    fi
done
echo "{\"name\":\"gpu\",\"addresses\":[$found]}"
