"""Reading a record: checkpoints, steps, differences, and the resolution of refs."""
