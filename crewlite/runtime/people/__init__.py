"""Asking people, and waiting for their answers."""
