"""From a command line to a job on YARN: its environment, its spark-submit line, and its end."""
