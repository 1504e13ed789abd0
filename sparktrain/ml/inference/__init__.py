"""Batch inference: a trained model applied to the rows of a DataFrame, in Spark tasks."""
