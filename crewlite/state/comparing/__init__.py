"""The differences between two runs, or between two places of a run, worked out from their records alone."""
