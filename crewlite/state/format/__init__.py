"""The format of what is recorded: entries, typed commits, the record they add up to, addresses, references."""
