"""What feeds the streams of a run: Spark jobs for the epochs that members ask for, and calls that push rows."""
