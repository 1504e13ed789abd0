"""What agents run on: tasks of a Spark session, or processes of this machine."""
