"""What is done to recorded runs: fork, edit, answer, transfer, prune, repair, acquire a branch to go on with it."""
