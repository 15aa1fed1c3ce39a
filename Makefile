# Everything here runs in .venv, which the first target that needs it creates.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
DOCS := build/docs

.PHONY: demo test test-slow lint docs bench audit wheel lock clean

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

audit:  ## known vulnerabilities of what is locked; needs the network
	$(PYTHON) -m venv --clear build/audit
	build/audit/bin/python -m pip install -q pip-audit==2.10.1
	build/audit/bin/pip-audit --strict --require-hashes --disable-pip -r requirements-dev.lock

wheel:  ## build the wheel, install it where nothing else is, and run what was installed
	$(PYTHON) -m venv --clear build/wheel
	build/wheel/bin/python -m pip wheel -q --no-deps -w build/dist .
	build/wheel/bin/python -m pip install -q -c constraints.txt build/dist/neuraldbg-*.whl
	echo 'print("trained")' > build/plain.py
	cd build && wheel/bin/neuraldbg run --json wheel.json plain.py
	cd build && wheel/bin/python -c "import neuraldbg; print(neuraldbg.__file__)"
	grep -q '"schema_version": 1' build/wheel.json

lock:  ## write requirements-dev.lock anew from constraints.txt; needs uv and the network
	@grep '^#' requirements-dev.lock > build/lock
	grep -v '^torch==' constraints.txt | uv pip compile - -q --no-deps --generate-hashes \
		--python-version 3.11.7 --no-header --no-annotate --no-emit-index-url >> build/lock
	@mv build/lock requirements-dev.lock

clean:
	rm -rf $(VENV) build dist .coverage .coverage.* .mypy_cache .ruff_cache .pytest_cache

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[dev]'
	@touch $@
