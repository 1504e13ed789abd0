"""What a rule may change in the parameters of a trial that runs: the distributions and lists of its space."""

from collections.abc import Sequence

from sparktrain.config.stoppers import PBT, AnyStopRule
from sparktrain.errors import SpecError
from sparktrain.search.sampled_space import Leaf, SampledSpace
from sparktrain.search.space import Grid, Space, When

Leaves = tuple[tuple[str, Leaf], ...]


def leaves_for(space: Space, rules: Sequence[AnyStopRule]) -> Leaves:
    """What the rules may change, by paths with dots; nothing unless one of them changes parameters.

    Raises SpecError for a space where a rule cannot make other cases.
    """
    rule = next((candidate for candidate in rules if isinstance(candidate, PBT)), None)
    if rule is None:
        return ()
    leaves = _leaves(space, rule)
    if not any(len(leaf) > 1 if isinstance(leaf, tuple) else leaf.size != 1 for _, leaf in leaves):
        raise SpecError(
            f"stopper {rule} changes parameters, and the space ({space}) has one value of each: give it a "
            "distribution, such as lr=loguniform(1e-4, 1e-1), or a list of values"
        )
    return leaves


def _leaves(space: Space, rule: PBT) -> Leaves:
    if isinstance(space, SampledSpace) and not space.has_code:
        return tuple(space.leaves.items())
    if isinstance(space, Grid) and space.where is None:
        axes = [(name, axis) for name, axis in space.axes if not isinstance(axis, When)]
        if len(axes) == len(space.axes):
            return tuple(axes)
    raise SpecError(
        f"stopper {rule} changes parameters while trials run, which it cannot do in a space with conditions (when, "
        "where=) or a list of cases: pass distributions and lists by name, and let the function ignore what does not "
        "apply"
    )
