"""Pages of HTML that show what is recorded: one file each, without scripts, which loads nothing."""
