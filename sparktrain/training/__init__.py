"""The zygote, which imports, and its members, which train: all that runs in an executor's child processes."""
