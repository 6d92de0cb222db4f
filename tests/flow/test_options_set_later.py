"""Options of a decorated function that are set later take effect, or are refused with where to give them."""

from __future__ import annotations

import pytest

from crewlite.errors import ConfigError
from crewlite.flow import flow, recoverable, step


@pytest.mark.parametrize(
    ("decorator", "option"),
    [
        *((flow, option) for option in ("retries", "retry_delay", "timeout", "failure_policy", "max_concurrency")),
        *((recoverable, option) for option in ("classifier", "max_recovery_attempts", "timeout", "max_concurrency")),
        *((step, option) for option in ("retries", "timeout", "runtime", "compensate", "max_concurrency", "effect")),
        *((step, option) for option in ("cache", "version", "deps")),
    ],
)
def test_an_option_that_only_the_decorator_takes_is_refused_with_where_to_give_it(decorator, option):
    @decorator
    def send():
        return "sent"

    by = f"@{decorator.__name__}"
    with pytest.raises(
        ConfigError, match=rf"^{by} 'send' has no attribute '{option}' to set; .* {by}\({option}=...\)$"
    ):
        setattr(send, option, 2)


@pytest.mark.parametrize("decorator", [flow, step])
def test_a_misspelt_option_is_refused_and_an_attribute_of_ones_own_is_kept(decorator):
    @decorator
    def send():
        return "sent"

    with pytest.raises(ConfigError, match="has no attribute 'max_concurency' to set; did you mean 'max_concurrency'"):
        send.max_concurency = 2
    send.owner = "Ada"
    assert send.owner == "Ada"


def test_checkpoint_and_verbose_of_a_flow_may_be_set_later(capsys, tmp_path, monkeypatch):
    @flow
    def send():
        return "sent"

    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="checkpoint is 'runs.db'; wanted True, or CheckpointConfig"):
        send.checkpoint = "runs.db"
    with pytest.raises(ConfigError, match="has no attribute 'verbos' to set; did you mean 'verbose'"):
        send.verbos = True
    send.checkpoint = send.verbose = True
    assert send.kickoff() == "sent"
    assert (tmp_path / ".checkpoints").is_dir()
    assert "flow send has finished" in capsys.readouterr().out
