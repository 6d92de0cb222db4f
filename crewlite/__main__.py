"""`python -m crewlite` runs the command line."""

from crewlite.cli.main import main

if __name__ == "__main__":
    main(prog_name="crewlite")
