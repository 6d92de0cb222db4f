"""The terminal view of a location: runs and their branches on the left, one place of a run on the right.

What a panel shows is worked out by plain functions, which are tested without a terminal; the widgets only show it.
"""
