# Two commands do everything on a fresh machine with Python 3.11: `make demo` and `make test`.
PYTHON ?= python3
ifeq ($(origin PYTHON), file)
VENV   := .venv
else  # an environment of its own for each Python that is named: make test PYTHON=python3.12
VENV   := .venv-$(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
endif
BIN    := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest
unexport PYTHONDONTWRITEBYTECODE  # each of the processes of the tests would compile all modules anew
SPREAD := -n auto --maxprocesses 8 --dist worksteal
MEMORY  = TMPDIR=$$($(BIN)/python tests/in_memory.py)
READY  := $(VENV)/.ready

.PHONY: demo demo-flow test fast oldest check format docs bench soak crowds clean

$(READY): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "crewlite needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Try: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

demo: $(READY)
	$(BIN)/crewlite demo

demo-flow: $(READY)
	$(BIN)/python examples/newsletter_demo.py

test: $(READY)
	$(MEMORY) $(PYTEST) $(SPREAD)

fast: $(READY)
	$(MEMORY) $(PYTEST) $(SPREAD) -m "not soak and not slow"

oldest:
	$(PYTHON) -m venv .venv-oldest
	$(PYTHON) tests/oldest.py > .venv-oldest/oldest.txt
	.venv-oldest/bin/python -m pip install --quiet --disable-pip-version-check --constraint .venv-oldest/oldest.txt --editable '.[pdf,tui,test]'
	.venv-oldest/bin/python -m pytest $(SPREAD) -m "not soak and not slow" --deselect tests/docs/test_catalogue.py

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(PYTEST) $(SPREAD)

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: $(READY)
	$(BIN)/python -m benchmarks

soak: $(READY)
	$(PYTEST) -m soak $(SPREAD) -rP --show-capture=stdout --durations=20

crowds: $(READY)
	CROWDS=$(or $(CROWDS),50) $(PYTEST) -m soak -v -s tests/crash/test_swarm.py -k many_crowds

clean:
	rm -rf .venv .venv-* .pytest_cache .mypy_cache .ruff_cache .hypothesis site
