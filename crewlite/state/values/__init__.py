"""Named values of a run: the mapping that a program changes, its snapshots, and states that exist without a run."""
