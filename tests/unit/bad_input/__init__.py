"""Tables of bad input, for `test_bad_input.py`."""
