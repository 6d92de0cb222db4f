"""`crewlite checkpoint diff`: what differs between two runs, for people and for programs."""

import json


def test_diff_tells_what_a_fork_did_otherwise(shop):
    shop.ask("run", "crews.py:crew", "--input", "topic=tides", "--run-id", "r")
    shop.ask("checkpoint", "fork", "r", "--branch", "winds", "--input", "topic=winds", "--crew", "crews.py:crew")
    said = shop.ask("checkpoint", "diff", "r", "r/winds")
    assert said.returncode == 0 and "inputs\n  topic\n    -tides\n    +winds\n" in said.stdout
    assert "  ~ task:one  description, output\n" in said.stdout
    found = json.loads(shop.ask("checkpoint", "diff", "r@task:one", "r", "--json").stdout)
    assert found["differ"] and found["a"]["status"] == "unfinished" and found["usage"]["requests"] == 2
    assert {step["address"] for step in found["steps"] if step["status"] == "only_b"} >= {"task:two", "task:three"}
    assert not json.loads(shop.ask("checkpoint", "diff", "r", "r", "--json").stdout)["differ"]
    assert shop.ask("checkpoint", "diff", "r", "nobody").returncode == 1


def test_export_writes_a_page_or_the_file_to_import(shop):
    shop.ask("run", "crews.py:crew", "--input", "topic=tides", "--run-id", "r")
    shop.ask("checkpoint", "fork", "r@task:one", "--branch", "again", "--crew", "crews.py:crew")
    assert shop.ask("export", "r", "-o", "run.html").stdout == "exported r to run.html\n"
    assert 'data-branch="again"' in (shop.path / "run.html").read_text(encoding="utf-8")
    assert "digest" in shop.ask("checkpoint", "export", "r", "run.json").stdout
    assert json.loads((shop.path / "run.json").read_text(encoding="utf-8"))["run_id"] == "r"
    assert "digest" in json.loads(shop.ask("export", "r", "more.html", "--json").stdout)
    assert "exists already" in shop.ask("export", "r", "run.html").stderr
    assert "wanted one file" in shop.ask("export", "r").stderr
    assert shop.ask("checkpoint", "diff", "r", "r/again", "-o", "diff.html").stdout == "wrote diff.html\n"
    assert "<h1>" in (shop.path / "diff.html").read_text(encoding="utf-8")
    assert "wanted a page" in shop.ask("checkpoint", "diff", "r", "r/again", "-o", "diff.txt").stderr
    assert "not written" in shop.ask("export", "r", "nowhere/run.html").stderr
