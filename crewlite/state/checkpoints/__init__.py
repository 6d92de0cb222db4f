"""Checkpoints: what one tells, which of several is meant, what is different between two, and one as plain data."""
