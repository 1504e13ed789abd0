"""Which end of a metric is best: its name implies it, or the caller names it."""

import pytest

from sparktrain.config.metric_names import first_line, implied_by, mode_of
from sparktrain.errors import SpecError

LOWER = """
loss val_loss train/loss dice_loss accuracy_loss generator_loss log_loss logloss error error_rate err mse val_mse rmse
mae mape msle mean_squared_error root_mean_squared_error sparse_categorical_crossentropy cross_entropy perplexity ppl
nll negative_log_likelihood neg_accuracy kl_divergence wer cer fid regret loss_epoch val-loss valid.loss Loss
"""
HIGHER = """
accuracy val_accuracy acc top_5_accuracy top5_acc accuracy_top_1 sparse_categorical_accuracy auc roc_auc pr_auc f1
f1_score val_f1 precision precision_at_5 recall@10 r2 r2_score iou mean_io_u dice map mAP50-95 ndcg@10 bleu rouge score
reward mean_reward psnr ssim neg_mean_squared_error log_likelihood cosine_similarity test_acc
"""
SILENT = """
y result value speed 1-accuracy 1_minus_auc inverse_accuracy accuracy_std brier_score error_score learning_rate count
loss_ratio reward_per_episode time rank val k 5 _
"""


@pytest.mark.parametrize("name", LOWER.split())
def test_lower_is_better(name: str) -> None:
    assert mode_of(name, None) == "min"
    assert mode_of(name, "max") == "max"


@pytest.mark.parametrize("name", HIGHER.split())
def test_higher_is_better(name: str) -> None:
    assert mode_of(name, None) == "max"
    assert mode_of(name, "min") == "min"


@pytest.mark.parametrize("name", SILENT.split())
def test_an_unclear_name_needs_a_mode(name: str) -> None:
    assert implied_by(name) is None
    with pytest.raises(SpecError, match=r"mode='max' when higher ones are, or mode='min' .*--mode"):
        mode_of(name, None)
    assert mode_of(name, "min") == "min"


def test_without_a_metric_no_mode_is_needed() -> None:
    assert mode_of(None, None) == "max"
    assert mode_of(None, "min") == "min"


def test_a_given_mode_is_checked() -> None:
    with pytest.raises(SpecError, match="must be 'max' or 'min'"):
        mode_of("loss", "least")


def test_the_first_line() -> None:
    assert first_line("val_loss", "min") == "metric val_loss, lower is better"
