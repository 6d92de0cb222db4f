"""One step, from the request to its commit: address, decision, attempts, remedies, and what runs beside it."""
