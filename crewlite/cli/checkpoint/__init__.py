"""`crewlite checkpoint`: reading what was recorded, and caring for it, through History alone."""
