"""Random histories on every provider are what a dictionary says they are."""

import pytest

from tests.state.random_histories import Program


@pytest.mark.parametrize("seed", range(4))
def test_any_history_is_what_a_dictionary_says_it_is_on_every_provider(seed, tmp_path):
    Program(seed, tmp_path).play(12)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1000, 1100))
def test_any_long_history_is_what_a_dictionary_says_it_is_on_every_provider(seed, tmp_path):
    Program(seed, tmp_path).play(40)
