"""Reading what is recorded: checkpoints, steps, and which of several a ref means."""
