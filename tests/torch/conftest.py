"""The ring of tests that need torch, which no `.venv` has: there its files are not collected."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("torch") else ["test_*.py"]
