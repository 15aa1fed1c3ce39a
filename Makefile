# Everything here runs in .venv, which the first target that needs it creates.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
DOCS := build/docs

.PHONY: demo test test-slow lint docs bench clean

demo: $(INSTALLED)  ## train a model with a fault built in, and explain it
	$(BIN)/neuraldbg demo

test: lint docs  ## everything that continuous integration checks
	$(BIN)/coverage run -m pytest -m "not slow"
	$(BIN)/coverage report --fail-under=85
	$(BIN)/coverage report --include='*/neuraldbg/core/*' --fail-under=95

test-slow: $(INSTALLED)  ## every test, the slow ones too, without coverage
	$(BIN)/python -m pytest

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/bandit -q -r src -c pyproject.toml

docs: $(INSTALLED)  ## build the documentation; a warning is an error
	$(BIN)/python docs/generate_causes.py
	$(BIN)/python docs/generate_interventions.py
	$(BIN)/sphinx-build -q -W --keep-going -b html docs $(DOCS)

bench: $(INSTALLED)  ## run every benchmark script in bench/
	@for script in $$(grep -l __main__ bench/*.py); do \
		echo "== $$script"; $(BIN)/python "$$script" || exit 1; \
	done

clean:
	rm -rf $(VENV) build dist .coverage .coverage.* .mypy_cache .ruff_cache .pytest_cache

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[dev]'
	@touch $@
