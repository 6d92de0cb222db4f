"""The engine: drives a definition, answers recorded steps, commits the outcomes of the others."""
