"""Ask the crew a question.

    python -m my_crew "Why are there two high tides a day?"

Killed in the middle? Run the same line again: it goes on, and nothing that was answered is asked again.
"""

import sys

from my_crew.crew import MyCrew

QUESTION = "Why are there two high tides a day?"


def main() -> None:
    """Print the answer to the question on the command line."""
    question = " ".join(sys.argv[1:]) or QUESTION
    print(MyCrew().crew().kickoff(inputs={"question": question}, resume=True))


if __name__ == "__main__":
    main()
