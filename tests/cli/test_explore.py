"""Variants from a file, from the terminal: what they came to, side by side; mistakes are named with their lines."""

from __future__ import annotations

import json

from crewlite import History

BEGIN = ("run", "crews:crew", "--input", "topic=tides", "--run-id", "r")
EXPLORE = ("checkpoint", "explore", "r@task:one", "variants.yaml", "--crew", "crews:crew")
VARIANTS = """
winds:
  inputs: {topic: winds}
brief:
  prompt:
    tasks.three.description: Do it briefly on {topic}
edited:
  edits:
    task:one: nothing
"""


def test_variants_of_a_file_are_compared_and_a_repeated_command_pays_nothing(shop):
    shop.ask(*BEGIN)
    shop.paid()
    (shop.path / "variants.yaml").write_text(VARIANTS)
    done = shop.ask(*EXPLORE, "--judge", "offline")
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()]
    assert rows[0] == ["variant", "status", "score", "tokens", "cost", "time", "branch"]
    assert [row[:2] for row in rows[1:4]] == [[name, "finished"] for name in ("winds", "brief", "edited")]
    assert "brief: [Do it briefly on tides]" in done.stdout
    assert "crewlite checkpoint diff r r/explore/" in done.stdout
    assert len(shop.paid()) == 3 + 2 + 2
    again = shop.ask(*EXPLORE, "--json")
    found = json.loads(again.stdout)
    assert [row["output"] for row in found["rows"]] == [
        "[Do three on winds]",
        "[Do it briefly on tides]",
        "[Do three on tides]",
    ]
    assert found["rows"][0]["usage"]["total_tokens"] == 330
    assert found["base"]["branch"] == "main"
    assert shop.paid() == []
    with History(shop.path / ".checkpoints") as history:
        assert history.run(found["rows"][0]["ref"]).status == "finished"


def test_mistakes_in_a_file_are_told_with_their_lines_and_nothing_is_forked(shop):
    shop.ask(*BEGIN)
    told = {
        "winds:\n  inptus: {topic: x}\nb:\n  edits: {task:on: x}\n": [
            "variants.yaml, line 1: winds: unknown key 'inptus'; did you mean 'inputs'?",
            "variants.yaml, line 3: b: 'task:on' names no finished step at that checkpoint, so it cannot be edited; did "
            "you mean 'task:one'?",
        ],
        "a:\n  model: x\na:\n  model: y\n": ["variants.yaml, line 3: a is repeated; it was first set in line 1"],
        "a: {": ["variants.yaml, line 1: invalid YAML"],
        "a: !!python/object/apply:os.system [echo]\n": ["variants.yaml, line 1: "],
        "": ["variants.yaml holds no variants"],
    }
    for text, wanted in told.items():
        (shop.path / "variants.yaml").write_text(text)
        done = shop.ask(*EXPLORE)
        assert done.returncode == 1, done.stdout
        assert all(line in done.stderr for line in wanted), done.stderr
    missing = shop.ask("checkpoint", "explore", "r", "none.json", "--crew", "crews:crew")
    assert "none.json cannot be read" in missing.stderr
    (shop.path / "v.json").write_text('{\n\t"a": {"edits": {"task:three": "x"}}\n}')
    assert "a: x" in shop.ask("checkpoint", "explore", "r", "v.json", "--crew", "crews:crew").stdout
    with History(shop.path / ".checkpoints") as history:
        assert [run.branch for run in history.runs()] == ["main", "explore/main/a"]
