"""One kickoff, from a definition to its result: request, plan, resumption, and the verbs of all definitions."""
