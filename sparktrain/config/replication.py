"""How often each set of parameters is tried: repeats with seeds of their own, and folds of the data. Pure arithmetic.

A **case** is one set of parameters that the sampler proposes. With `repeats=n` and `folds=k` it becomes n * k trials
with consecutive numbers: all folds of repeat 0, then those of repeat 1, and so on.
"""

from msgspec import Struct

from sparktrain.base import formatting
from sparktrain.config.param_values import shown
from sparktrain.config.quantities import count
from sparktrain.errors import SpecError

MOST_REPLICAS = 1000
"""Most trials of one case."""


class Replica(Struct, frozen=True):
    """Which of its case's trials a trial is: what `ctx` shows of it."""

    repeat: int = 0
    """From 0 to `repeats - 1`."""
    fold: int = 0
    """From 0 to `folds - 1`."""
    repeats: int = 1
    folds: int = 1


class Replication(Struct, frozen=True):
    """The number of repeats and of folds of each case; 1 and 1 where each case is one trial."""

    repeats: int = 1
    folds: int = 1

    @property
    def size(self) -> int:
        """Trials of each case."""
        return self.repeats * self.folds

    def case(self, trial: int) -> int:
        """The number of the case of a trial, from 0."""
        return trial // self.size

    def trials(self, case: int) -> range:
        """The numbers of the trials of a case."""
        return range(case * self.size, (case + 1) * self.size)

    def replica(self, trial: int) -> Replica:
        """Which of its case's trials a trial is."""
        repeat, fold = divmod(trial % self.size, self.folds)
        return Replica(repeat, fold, self.repeats, self.folds)

    def seed_number(self, trial: int) -> int:
        """The number that the seed of a trial follows from.

        Where a case has several trials that is the repeat: folds of a repeat share their seed, so that they split the
        data alike, and so do the same repeats of all cases, so that differences between cases are paired.
        """
        return trial if self.size == 1 else self.replica(trial).repeat

    def counted(self, cases: int) -> str:
        """How many trials so many cases have.

        >>> Replication(1, 1).counted(40), Replication(3, 5).counted(40)
        ('40 trials', '40 sets of parameters x 3 repeats x 5 folds = 600 trials')
        """
        trials = formatting.count(cases * self.size, "trial")
        if self.size == 1:
            return trials
        numbers = (self.repeats, "repeats"), (self.folds, "folds")
        factors = [f"{number} {word}" for number, word in numbers if number > 1]
        return " x ".join([f"{cases} {'set' if cases == 1 else 'sets'} of parameters", *factors]) + f" = {trials}"


def replication(repeats: object, folds: object) -> Replication:
    """The checked numbers. Raises SpecError."""
    pair = Replication(count(repeats, "repeats", least=1), count(folds, "folds", least=1))
    if pair.size > MOST_REPLICAS:
        raise SpecError(
            f"repeats ({shown(pair.repeats)}) times folds ({shown(pair.folds)}) is {pair.size} trials for each set of "
            f"parameters, and must be at most {MOST_REPLICAS}: pass smaller numbers"
        )
    return pair
