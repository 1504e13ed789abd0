"""Every decision, pure: an event with its time goes in, commands come out. No thread, socket, clock or Spark."""
