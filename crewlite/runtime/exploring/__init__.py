"""Explore variants of a recorded run: fork one place into several, run these side by side, and compare the results."""
