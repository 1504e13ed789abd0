"""Who else learns about a run: the contract of callbacks, the threads that call them, MLflow, and notices."""
