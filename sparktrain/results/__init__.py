"""What calls return: the results of sweeps and runs."""
