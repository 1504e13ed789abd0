"""Files with the parameters of a sweep or a run, and the text of values in them."""
