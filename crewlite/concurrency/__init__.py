"""Threads, loops and waits, and the limits on what goes on at once."""
