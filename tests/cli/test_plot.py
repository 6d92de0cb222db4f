"""The pages that the command draws: a flow, and a run of it."""

import pytest

from crewlite import event_bus
from crewlite.events import FlowPlotEvent

PLOTTED = """
from crewlite import Flow, listen, start
from crewlite.flow import flow

class Plan(Flow):
    @start()
    def begin(self):
        return "begun"

    @listen(begin)
    def end(self):
        return "ended"

@flow
def plain():
    return 1
"""


def test_a_flow_and_its_run_are_drawn(shop):
    (shop.path / "plans.py").write_text(PLOTTED)
    drawn = shop.ask("plot", "plans.py:Plan", "-o", "graph.html")
    assert (drawn.returncode, drawn.stdout) == (0, f"{shop.path / 'graph.html'}\n")
    assert "begun" not in (shop.path / "graph.html").read_text()
    assert shop.ask("run", "plans.py:Plan", "--run-id", "one").returncode == 0
    with event_bus.scoped():
        told = []
        event_bus.on(FlowPlotEvent, lambda source, event: told.append((event.type, event.flow_name)))
        assert shop.ask("plot", "one", "--crew", "plans.py:Plan").stdout == f"{shop.path / 'crewlite_flow.html'}\n"
        assert event_bus.flush()
    assert told == [("flow_plot", "Plan")]
    assert "<pre>begun</pre>" in (shop.path / "crewlite_flow.html").read_text()
    assert shop.ask("plot", "plans:Plan", "--mermaid").stdout.startswith('flowchart TD\n    m0(["begin"])')
    (shop.path / "pyproject.toml").write_text('[tool.crewlite]\ncrew = "plans:Plan"\n')
    assert shop.ask("plot", "one", "-o", "again.html", "--location", ".checkpoints").returncode == 0
    assert shop.ask("plot", "--mermaid").returncode == 0


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ((), 2, "no flow is named: wanted MODULE:FLOW"),
        (("one",), 2, "no flow is named"),
        (("plans:plain",), 2, "plans:plain is flow 'plain'; wanted a class of flows"),
        (("plans:Plan", "--crew", "plans:Plan"), 2, "plans:Plan names a flow, and so does --crew"),
        (("plans:Plan", "--mermaid", "-o", "x"), 2, "--mermaid prints the graph alone"),
        (("one", "--crew", "plans:Plan"), 1, "'./.checkpoints' does not exist, so it holds no runs"),
        (("plans:Plan", "-o", "nowhere/x.html"), 1, "there is no directory"),
    ],
)
def test_what_cannot_be_drawn_is_told(shop, words, code, told):
    (shop.path / "plans.py").write_text(PLOTTED)
    said = shop.ask("plot", *words)
    assert (said.returncode, said.stdout) == (code, "")
    assert told in " ".join(said.stderr.split())
