"""A run as one HTML page that needs no network: what it shows, the page itself, and its files."""
