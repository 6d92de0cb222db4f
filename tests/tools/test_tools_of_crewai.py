"""Tools whose classes were written for CrewAI."""

from __future__ import annotations

from crewlite.tools import BaseTool, EnvVar


class SiteSearch(BaseTool):
    name: str = "site_search"
    description: str = "Search any site."
    package_dependencies: list[str] = ["requests"]
    env_vars: list[EnvVar] = [
        EnvVar(name="SEARCH_KEY", description="The key"),
        EnvVar(name="LANG", description="", required=False),
    ]

    def __init__(self, site: str = "", **fields):
        super().__init__(**fields)
        self.description = f"Search {site}."
        self._generate_description()

    def _run(self, query: str) -> str:
        return query


def test_a_tool_may_describe_itself_anew_and_name_variables_of_the_environment():
    tool = SiteSearch(site="example.com")
    assert tool.schema_for_model["function"]["description"] == "Search example.com."
    assert [(one.name, one.required, one.default) for one in tool.env_vars] == [
        ("SEARCH_KEY", True, None),
        ("LANG", False, None),
    ]
    assert tool.run(query="tides") == "tides"
