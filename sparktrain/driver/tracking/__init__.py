"""Who else learns about a run: callbacks, what they get and when, the threads that call them, MLflow, and notices."""
