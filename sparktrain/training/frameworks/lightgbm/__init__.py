"""LightGBM."""
