"""The commands that continue from a run, as a shell takes them: what status, page and report print. Pure."""

import shlex
from dataclasses import dataclass, field

import msgspec

from sparktrain.config.gang_spec import GangSpec
from sparktrain.config.sampler_names import is_object
from sparktrain.runs.plan import Plan
from sparktrain.search.space_json import is_stored

STREAM = "stream"
"""The kind of a dataset that is stored nowhere."""


@dataclass(frozen=True, kw_only=True)
class NextCommands:
    """What a command needs beside the directory of the run, so that it does not fail by its own text."""

    env: tuple[str, ...] = ()
    """Variables that the call gave to its trials. Their values are not stored: a command takes them from its shell."""
    gang: GangSpec = field(default_factory=GangSpec)
    gpus: int = 0
    gpu_memory: int | None = None
    streams: tuple[str, ...] = ()
    """Datasets that no other process has."""
    unstored: str = ""
    """What else only the call has that started the run, such as its sampler."""
    listed: bool = False
    """It runs every case of its space, and has no number of trials of its own."""
    local: bool = False
    """Its newest driver trained on this machine, without Spark."""

    def resume(self, directory: str) -> str | None:
        """Resumes the run; None where only the call that started it can."""
        if self.streams or self.unstored:
            return None
        return self._command(["sparktrain", "resume", directory])

    def extend(self, directory: str) -> str:
        """Gives the sweep one more trial, or in words what does."""
        if self.streams or self.unstored:
            return "the call that started it, with a larger trials="
        if self.listed:
            return f"sparktrain extend {shlex.quote(directory)} with more values in --grid"
        return self._command(["sparktrain", "extend", directory, "--trials", "1"])

    def refit(self, directory: str) -> str:
        """Trains a trial again, from step 0, without its number at the end; empty where no command can."""
        if self.streams:
            return ""
        words = ["sparktrain", "refit", directory, "--workers", str(self.gang.workers)]
        words += ["--ps", str(self.gang.ps)] if self.gang.ps else []
        words += ["--backend", self.gang.backend.value] if self.gang.size > 1 else []
        words += ["--gpus", str(self.gpus)] if self.gpus and self.gpu_memory is None else []
        words += ["--gpu-memory", str(self.gpu_memory)] if self.gpu_memory is not None else []
        return f"{self._command(words)} --from-checkpoint none --trial "

    def how_to_resume(self, directory: str, name: str) -> str:
        """What continues the run, in words: the command, or the call that started it and why."""
        if (command := self.resume(directory)) is not None:
            return command
        missing_part = f"data {', '.join(self.streams)}" if self.streams else self.unstored
        return f"the call that started it, with name={name!r}, because its {missing_part} is not stored"

    def _command(self, words: list[str]) -> str:
        words += [word for name in self.env for word in ("--env", name)]
        return shlex.join([*words, "--local"] if self.local else words)


def logs_command(directory: str, trial: int | str) -> str:
    """Prints the log of a trial."""
    return f"sparktrain logs {shlex.quote(directory)} {trial}"


def next_commands(plan: Plan, local: bool = False) -> NextCommands:
    """The commands that continue a run with this plan."""
    spec = plan.sweep_spec()
    documents = {} if plan.data is msgspec.UNSET else plan.data
    unstored = "sampler" if plan.sampler is not msgspec.UNSET and is_object(plan.sampler) else ""
    return NextCommands(
        env=plan.env,
        gang=spec.gang,
        gpus=spec.gpus,
        gpu_memory=spec.gpu_memory,
        streams=tuple(name for name, document in documents.items() if document["kind"] == STREAM),
        unstored=unstored or ("" if is_stored(plan.space) else "space"),
        listed=plan.sampler is msgspec.UNSET and spec.trials is None,
        local=local,
    )
