"""Claiming and writing a branch: the journal, its writer, claims, lineage, compaction, values, manual checkpoints."""
