"""What crewlite asks of the operating system: disk, locks of files, forked children, clock."""
