"""A long run of sweeps and gangs under random faults: see `python -m benchmarks.soak --help`."""
