"""Values beside a run: what a program keeps there, how commits record it, and states that have no run around them."""
