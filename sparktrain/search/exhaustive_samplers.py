"""Samplers of Optuna that end by themselves: what they have left while other trials run.

`Study.optimize` asks for the next trial when one has ended. On several slots such a sampler would repeat a case that
runs, because it stops the study only once the last one has ended.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial


def ends_by_itself(study: "Study") -> bool:
    """Whether the sampler of the study stops it once every case was tried."""
    from optuna.samplers import BruteForceSampler, GridSampler

    return isinstance(study.sampler, BruteForceSampler | GridSampler)


def cases_left(study: "Study", unasked: int) -> int | None:
    """How many trials the sampler of the study has new cases for, beside `unasked` ones that are about to ask it.

    None for a sampler without an end, and where nothing is known yet. Blocks on the storage.
    """
    from optuna.samplers import BruteForceSampler, GridSampler

    sampler = study.sampler
    if isinstance(sampler, GridSampler):
        return max(0, _of_grid(study, sampler) - unasked)
    if isinstance(sampler, BruteForceSampler):
        remaining = _of_tree(study, sampler)
        return None if remaining is None else max(0, remaining - unasked)
    return None


def _of_grid(study: "Study", sampler: Any) -> int:
    grid_ids = set()
    for trial in study.get_trials(deepcopy=False):
        attrs = trial.system_attrs
        if "grid_id" in attrs and sampler._same_search_space(attrs["search_space"]):
            grid_ids.add(attrs["grid_id"])
    return len(set(range(len(sampler._all_grids))) - grid_ids)


def _of_tree(study: "Study", sampler: Any) -> int | None:
    """The parameters that trials have had so far make a tree, in which Optuna counts what is not yet tried."""
    from optuna.samplers._brute_force import _TreeNode
    from optuna.trial import TrialState

    started_cases = [
        case for case in study.get_trials(deepcopy=False) if case.state is not TrialState.WAITING and case.params
    ]
    if not started_cases:
        return None
    tree = _TreeNode()
    sampler._populate_tree(tree, started_cases, {})
    running_count = sum(_continues(tree, case) for case in started_cases if case.state is TrialState.RUNNING)
    return max(0, int(tree.count_unexpanded(exclude_running=True)) - running_count)


def _continues(tree: Any, trial: "FrozenTrial") -> bool:
    """Whether others asked for a further parameter where a running trial stands: it will take one of its values."""
    node = tree
    for name, distribution in trial.distributions.items():
        below = getattr(node, "children", None) or {}
        node = below.get(distribution.to_internal_repr(trial.params[name]))
    return bool(getattr(node, "children", None))
