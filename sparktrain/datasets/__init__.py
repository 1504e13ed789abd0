"""Datasets: immutable rows in groups that every member can find by arithmetic, and the formats that they come from."""
