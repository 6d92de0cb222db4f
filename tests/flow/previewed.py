"""What the tests of previews share: steps that note where they ran, and what a preview says of each address."""

from __future__ import annotations

from crewlite import durable
from crewlite.flow import step

ran = []


def did():
    ran.append(durable.scope().address)


@step
def fetch(n):
    did()
    return {"number": n * 10, "text": f"the number {n * 10}"}


@step
def add(a, b):
    did()
    return a + b


@step
def tell(text):
    did()
    return text.upper()


def verdicts(preview):
    return {line.address: line.verdict for line in preview}


def told(preview):
    return {line.address: f"{line.verdict}: {line.why}" for line in preview}
