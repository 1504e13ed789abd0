"""The cluster that a run is on: Spark sessions, YARN, Kerberos, and why their tasks fail."""
