"""Spark DataFrames: written as datasets, and fed as streams, by ordinary Spark tasks."""
