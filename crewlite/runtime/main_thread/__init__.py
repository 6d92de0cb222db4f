"""The main thread: blocking callers, and signals of the operating system."""
