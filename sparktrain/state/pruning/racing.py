"""Racing: when the remaining repeats and folds of a case are not worth running. Pure.

Maron and Moore, "Hoeffding Races" (NIPS 1994), and Birattari et al., "A Racing Algorithm for Configuring
Metaheuristics" (GECCO 2002): candidates are tested on one instance after another, and leave the race once a test shows
that they are worse than the best. Here an instance is a repeat and fold, which all cases share with their seeds, so the
test is a paired one: Wilcoxon's signed-rank test, one-sided.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import groupby

from sparktrain.state.pruning.rule import Aim

LABEL = "racing"
MOST_CHANCE = 0.05
"""The test stops a case below this probability."""
TESTED = 5
"""The fewest pairs for which the test can come below it: with 5 the least probability is 1/32."""
LEAST = 2
"""The fewest pairs that can stop a case."""
_EXACT = 25
"""Up to this number of differences their signs are counted; beyond, the normal distribution is close enough."""


def cannot_win(
    mine: Mapping[int, float], best: Mapping[int, float], pending_count: int, lowest: float, aim: Aim
) -> str:
    """Why a case cannot become better than the best one, in words that follow its mean; empty while it can.

    `mine` and `best` are costs by the place of the trial in its case, smaller is better; `pending_count` trials of the
    case have not ended; `lowest` is the lowest cost of any trial.

    With five pairs or more, the case must not be worse by the test. With two to four, which no such test can decide,
    it leaves the race when it is worse in each of them and its mean would stay worse even if each trial that is left
    were as good as the best one of all.
    """
    pairs = [cost - best[place] for place, cost in sorted(mine.items()) if place in best]
    if pending_count < 1 or len(pairs) < LEAST or math.fsum(pairs) <= 0:
        return ""
    if len(pairs) >= TESTED:
        p_value = chance(pairs)
        return f"is {aim.worse} the best in {len(pairs)} pairs (p = {p_value:.2g})" if p_value < MOST_CHANCE else ""
    reachable = (math.fsum(mine.values()) + pending_count * lowest) / (len(mine) + pending_count)
    if min(pairs) <= 0 or reachable <= math.fsum(best.values()) / len(best):
        return ""
    return (
        f"is {aim.worse} the best in all {len(pairs)} pairs, and its mean could reach {aim.cost(reachable):.4g} at best"
    )


def chance(differences: Sequence[float]) -> float:
    """The probability that random signs give a sum of positive ranks at least as large: one-sided, with middle ranks
    for equal sizes, and without differences of 0. 1 where none is left."""
    sizes = sorted((abs(difference), difference > 0) for difference in differences if difference)
    ranks: list[tuple[int, bool]] = []
    for _, tied in groupby(sizes, key=lambda pair: pair[0]):
        ties = list(tied)
        ranks += [(2 * len(ranks) + len(ties) + 1, positive) for _, positive in ties]  # twice the middle rank
    observed = sum(rank for rank, positive in ranks if positive)
    if not ranks:
        return 1.0
    if len(ranks) > _EXACT:
        middle = sum(rank for rank, _ in ranks) / 2
        deviation = math.sqrt(sum(rank * rank for rank, _ in ranks)) / 2
        return math.erfc((observed - middle - 1) / deviation / math.sqrt(2)) / 2
    ways = [1] + [0] * sum(rank for rank, _ in ranks)
    for rank, _ in ranks:
        ways = [count + (ways[total - rank] if total >= rank else 0) for total, count in enumerate(ways)]
    return sum(ways[observed:]) / float(2 ** len(ranks))
