"""Tools that are classes: what a model is told of them, and what it may pass."""

from __future__ import annotations

import asyncio

import pytest
from pydantic import BaseModel, Field, SecretStr, ValidationError

from crewlite import BaseTool


class Search(BaseTool):
    name: str = "search"
    description: str = "Search the archive."
    token: SecretStr = SecretStr("hunter22")
    limit: int = 3

    def _run(self, query: str, pages: int = 1) -> str:
        """Args:
        query: What to look for.
        """
        return f"{query} {pages} {self.limit} {self.token.get_secret_value()}"


class Fetch(BaseTool):
    name: str = "fetch"
    description: str = "Fetch."

    async def _arun(self, url: str) -> str:
        await asyncio.sleep(0)
        return url


class Given(BaseModel):
    q: str = Field(description="A question.")


class WithSchema(BaseTool):
    name: str = "given"
    description: str = "Ask."
    args_schema: type[BaseModel] | None = Given

    def _run(self, **arguments):
        return arguments


def test_a_class_of_tools_takes_its_schema_from_run():
    search = Search(limit=5)
    assert list(search.schema_for_model["function"]["parameters"]["properties"]) == ["query", "pages"]
    assert search.schema_for_model["function"]["parameters"]["required"] == ["query"]
    assert asyncio.run(search.arun(query="tides", pages="2")) == "tides 2 5 hunter22"


def test_the_secrets_and_settings_of_a_tool_are_no_business_of_the_model():
    search = Search()
    for text in (repr(search), str(search.schema_for_model), search.model_dump_json(exclude={"args_schema"})):
        assert "hunter22" not in text
    assert "token" not in str(search.schema_for_model)


def test_a_class_of_tools_may_be_async():
    assert list(Fetch().schema_for_model["function"]["parameters"]["properties"]) == ["url"]
    assert asyncio.run(Fetch().arun(url="u")) == "u"


def test_a_schema_that_is_given_is_taken():
    made = WithSchema()
    assert made.schema_for_model["function"]["parameters"]["properties"] == {
        "q": {"type": "string", "title": "Q", "description": "A question."}
    }
    assert asyncio.run(made.arun(q="x")) == {"q": "x"}
    with pytest.raises(ValidationError):
        asyncio.run(made.arun())


def test_tools_are_themselves_and_can_be_keys():
    one, twin = Search(), Search()
    assert one == one
    assert one != twin
    assert len({one, twin}) == 2
