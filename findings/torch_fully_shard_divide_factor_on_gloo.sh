#!/usr/bin/env bash
# fully_shard averages gradients over Gloo too, and set_gradient_divide_factor chooses by what it divides. On CPUs as well?
#
# No. FSDP averages by ReduceOp.AVG, which Gloo has, so a model trains on CPUs as it does with NCCL. With a divide factor it
# asks for ReduceOp.PREMUL_SUM, which of PyTorch's backends NCCL alone has: the first backward pass raises RuntimeError,
# for each factor but the number of shards. set_force_sum_reduction_for_comms(True), which its documentation recommends
# for zero-copy transfers of NCCL and for MTIA, makes the same model train on Gloo: FSDP then divides by itself.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.15.0 numpy==2.4.6
cat > "$folder/program.py" <<'PYTHON'
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch.distributed.fsdp import fully_shard


def gradient(factor=None, sums=False):
    """Of one weight, by a step of two members; or the error of the step."""
    model = torch.nn.Linear(2, 2, bias=False)
    fully_shard(model)
    if factor is not None:
        model.set_gradient_divide_factor(factor)
    model.set_force_sum_reduction_for_comms(sums)
    try:
        model(torch.full((1, 2), 1.0 + dist.get_rank())).sum().backward()
    except RuntimeError as error:
        return str(error)
    return float(model.weight.grad.full_tensor()[0, 0])


def member(rank, folder):
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    plain, two, six, six_by_sums = gradient(), gradient(2.0), gradient(6.0), gradient(6.0, sums=True)
    if rank == 0:
        print(f"torch {torch.__version__}: no factor {plain}, 2 {two}, 6 {six!r}, 6 by sums {six_by_sums}")
    assert (plain, two, six_by_sums) == (1.5, 1.5, 0.5)
    assert "PREMUL_SUM with Gloo" in six, "Gloo has it now, or FSDP asks for another operation"
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.multiprocessing.spawn(member, (sys.argv[1],), nprocs=2)
PYTHON
"$folder/env/bin/python" "$folder/program.py" "$folder"
