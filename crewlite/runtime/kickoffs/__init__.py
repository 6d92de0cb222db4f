"""One kickoff, from a definition to its result: request, storage, resumption, and the verbs of all definitions."""
