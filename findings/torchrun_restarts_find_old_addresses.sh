#!/usr/bin/env bash
# torchrun --standalone --max-restarts starts all processes again after the loss of one. Do they form their group over Gloo?
#
# By chance. Since torchrun shares its own store with the processes, that store lives through all restarts, and torch adds
# no prefix for each. A new process may read the address of a rank before the new process of that rank has written its own.
# It connects to a process that is gone: the group fails after seconds with "Connection refused", which costs one more
# restart. With TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 each restart has a store of its own, and all of them work.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.15.0 numpy==2.4.6
cat > "$folder/program.py" <<'PYTHON'
import os
import signal
import time

import torch.distributed as dist

rank = int(os.environ["RANK"])
restart = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
if restart and rank == 2:
    time.sleep(3)  # the other processes come first: they read what the process before has written
dist.init_process_group("gloo")
dist.barrier()
if restart == 0 and rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
dist.barrier()
dist.destroy_process_group()
PYTHON
for shared in 1 0; do
    export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=$((1 - shared))
    timeout 60 "$folder/env/bin/python" -m torch.distributed.run --standalone --nproc-per-node 4 --max-restarts 1 \
        "$folder/program.py" > "$folder/output.txt" 2>&1 && ended=0 || ended=$?
    echo "store shared: $shared, torchrun ended with $ended"
    [ $((ended != 0)) = "$shared" ]
done
