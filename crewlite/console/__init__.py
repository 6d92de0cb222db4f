"""Live progress of runs on the console."""
