"""Where agents run: in tasks of a Spark session, or as processes of this machine."""
