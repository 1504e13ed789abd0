"""Names the GPUs of an agent so that all processes of its host agree."""

import subprocess

COMMAND = ("nvidia-smi", "--query-gpu=index,uuid", "--format=csv,noheader")
TIMEOUT_S = 20.0
"""`nvidia-smi` may have to load the driver of idle GPUs first."""


def devices(addresses: tuple[str, ...]) -> tuple[str, ...]:
    """The names of the GPUs at these addresses of Spark: their UUIDs, else the addresses.

    With isolated GPUs each container counts its own from 0; the UUID is the same for all. Blocks while `nvidia-smi`
    runs, at most 20 s; without its answer the addresses stay.
    """
    if not addresses:
        return ()
    try:
        printed = subprocess.run(COMMAND, capture_output=True, text=True, timeout=TIMEOUT_S, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return addresses
    lines = (line.partition(",") for line in printed.splitlines())
    names = {index.strip(): uuid.strip() for index, _, uuid in lines if uuid.strip()}
    return tuple(names.get(each, each) for each in addresses)
