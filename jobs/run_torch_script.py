"""A script for torchrun as a Spark job: the arguments are those of `python -m sparktrain.torch`.

    spark-submit --master yarn jobs/run_torch_script.py --nnodes 4 --dir /shared/runs --name big script.py --epochs 3

Exit codes are those of `sparktrain run --help`.
"""

import sys

from sparktrain import torch

if __name__ == "__main__":
    sys.exit(torch.main(sys.argv[1:]))
