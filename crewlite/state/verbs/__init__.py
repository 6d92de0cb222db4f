"""Operations on recorded runs: fork, edit, answer, transfer, prune, repair, and acquiring a branch to resume it."""
