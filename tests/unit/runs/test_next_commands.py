"""The commands that continue a run have what it was started with, or there are none."""

import pytest

from sparktrain.config.backends import Backend
from sparktrain.config.gang_spec import GangSpec
from sparktrain.runs.next_commands import NextCommands, logs_command


def test_a_refit_has_the_gang_the_gpus_and_the_variables_of_the_sweep() -> None:
    gang = GangSpec(workers=2, ps=1, backend=Backend.TENSORFLOW)
    commands = NextCommands(env=("KEY", "TOKEN"), gang=gang, gpus=1, local=True)

    assert commands.refit("/my runs/a") == (
        "sparktrain refit '/my runs/a' --workers 2 --ps 1 --backend tensorflow --gpus 1 --env KEY --env TOKEN --local "
        "--from-checkpoint none --trial "
    )
    assert commands.resume("/my runs/a") == "sparktrain resume '/my runs/a' --env KEY --env TOKEN --local"
    assert "--gpus 1" not in NextCommands(gpus=1, gpu_memory=8 * 2**30).refit("/runs/a")
    assert logs_command("/my runs/a", 3) == "sparktrain logs '/my runs/a' 3"


@pytest.mark.parametrize(
    ("commands", "what"),
    [
        (NextCommands(streams=("clicks",)), "data clicks"),
        (NextCommands(unstored="sampler"), "sampler"),
        (NextCommands(unstored="space"), "space"),
    ],
)
def test_what_is_not_stored_needs_the_call_itself(commands: NextCommands, what: str) -> None:
    assert commands.resume("/runs/a") is None
    assert commands.how_to_resume("/runs/a", "a") == (
        f"the call that started it, with name='a', because its {what} is not stored"
    )
    assert (commands.refit("/runs/a") == "") == bool(commands.streams)
