"""How values are recorded: as canonical JSON, without loss."""
