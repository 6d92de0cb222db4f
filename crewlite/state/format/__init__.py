"""The format of the record: entries, typed commits, the record that follows from them, addresses, references."""
