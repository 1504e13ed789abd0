"""A run as text and HTML, live and afterwards."""
