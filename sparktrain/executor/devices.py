"""Which GPUs an agent has, by names that all processes of its host understand."""

import subprocess

COMMAND = ("nvidia-smi", "--query-gpu=index,uuid", "--format=csv,noheader")
TIMEOUT_S = 20.0
"""The driver of GPUs that nobody uses may have to be loaded first."""


def devices(addresses: tuple[str, ...]) -> tuple[str, ...]:
    """The names of the GPUs at these addresses of Spark: their UUIDs, else the addresses.

    Where something isolates GPUs, each container counts its own from 0; the UUID is the same for all. Blocks while
    `nvidia-smi` is asked; where there is none, or it does not answer, addresses are all that is known.
    """
    if not addresses:
        return ()
    try:
        told = subprocess.run(COMMAND, capture_output=True, text=True, timeout=TIMEOUT_S, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return addresses
    lines = (line.partition(",") for line in told.splitlines())
    names = {index.strip(): uuid.strip() for index, _, uuid in lines if uuid.strip()}
    return tuple(names.get(each, each) for each in addresses)
