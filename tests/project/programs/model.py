"""A model that notes each question that it is asked, and has its process killed at one of them."""

import os
import signal
from pathlib import Path

from crewlite import BaseLLM


class Noting(BaseLLM):
    def call(self, messages, tools=None, agent=""):
        asked = Path(os.environ["ASKED"])
        question = messages[-1]["content"].strip().partition("\n")[0]
        with asked.open("a") as file:
            file.write(f"{agent}: {question}\n")
        if len(asked.read_text().splitlines()) == int(os.environ.get("DIE_AT", 0)):
            os.kill(os.getpid(), signal.SIGKILL)
        return f"{agent} on {question}"
