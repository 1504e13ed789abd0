"""Gradual warm-up as a schedule of PyTorch (Goyal et al., arXiv 1706.02677, section 2.2)."""

from typing import Any

from torch.optim.lr_scheduler import LambdaLR

from sparktrain.training.learning_rates import check_steps, warmup_factor


def warmup_lr(optimizer: Any, steps: int, size: int) -> LambdaLR:
    """The schedule of `TrainContext.warmup_lr` in a gang of `size` members. Raises SpecError for less than one step."""
    check_steps(steps, "steps of ctx.warmup_lr()")
    return LambdaLR(optimizer, lambda step: warmup_factor(step, steps, size))
