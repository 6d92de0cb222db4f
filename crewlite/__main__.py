"""`python -m crewlite`: the command."""

from crewlite.cli.main import main

if __name__ == "__main__":
    main(prog_name="crewlite")
