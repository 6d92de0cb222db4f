"""The page of a run: its branches, what their steps did and when, prompts, costs, and how branches differ."""
