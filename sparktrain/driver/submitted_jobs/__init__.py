"""From a command line to a job on YARN or Kubernetes: its environment, its spark-submit line, and its end."""
