"""The settings that a script has made, from the driver to its trials."""
