#!/usr/bin/env bash
# torchrun --standalone --max-restarts starts all processes again after the loss of one. Do they meet in an empty store?
#
# No. Since torchrun shares its own store with the processes, that store lives through all restarts, and torch adds no prefix
# for each: env:// gives the new processes the keys of those before, among them the addresses at which Gloo connects. A process that
# reads one before the new process of that rank has written its own, connects to one that is gone. With
# TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 each restart has a store of its own. The program forms no group.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.15.0 numpy==2.4.6
cat > "$folder/program.py" <<'PYTHON'
import os
import sys
from datetime import timedelta

import torch.distributed as dist

store, rank, size = next(dist.rendezvous("env://", timeout=timedelta(seconds=30)))
restart = os.environ["TORCHELASTIC_RESTART_COUNT"]
store.set(f"{restart}/{rank}", "ready")
store.wait([f"{restart}/{number}" for number in range(size)])
if restart == "0":
    sys.exit(rank)  # rank 1 fails, and torchrun starts both again
if rank == 1:
    print("keys of the processes before:", store.check(["0/0", "0/1"]), flush=True)
store.set(f"end/{rank}", "")
store.wait([f"end/{number}" for number in range(size)])
PYTHON
for shared in 1 0; do
    export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=$((1 - shared))
    timeout 100 "$folder/env/bin/python" -m torch.distributed.run --standalone --nproc-per-node 2 --max-restarts 1 \
        "$folder/program.py" > "$folder/output.txt" 2>&1
    echo "store shared: $shared, $(grep "^keys" "$folder/output.txt")"
    grep -q "^keys.*: $([ $shared = 1 ] && echo True || echo False)" "$folder/output.txt"
done
"$folder/env/bin/pip" list --format freeze | grep "^torch="
