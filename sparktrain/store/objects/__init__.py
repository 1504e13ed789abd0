"""Stores over object services: S3, Google Cloud Storage, Azure, and memory."""
