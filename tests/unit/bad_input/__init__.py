"""Tables of what users get wrong, for `test_bad_input.py`."""
