# Everything runs in a virtual environment of its own, .venv, which the first target that needs it creates.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin
# constraints.txt was made on Python 3.11; Python 3.10 resolves its own versions.
PINS := $(shell $(PYTHON) -c "import sys; print('-c constraints.txt' if sys.version_info >= (3, 11) else '')")
# How many tests run at a time, each on one processor.
WORKERS ?= 2

.PHONY: help quickstart check test bench docs constraints clean

help:  ## this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

$(VENV)/installed: pyproject.toml constraints.txt
	test -x $(RUN)/python || $(PYTHON) -m venv $(VENV)
	$(RUN)/python -m pip install --quiet --editable '.[dev]' $(PINS)
	@touch $@

quickstart: $(VENV)/installed  ## train a dense and a tensor Transformer on embedded data, and compare them
	$(RUN)/lformer quickstart

check: $(VENV)/installed  ## lint, format and types
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .
	$(RUN)/mypy

test: check  ## all checks and all tests
	OMP_NUM_THREADS=1 $(RUN)/python -m pytest -n $(WORKERS) --dist worksteal

bench: $(VENV)/installed  ## the algebra against other libraries and against its lower bound
	$(RUN)/python benchmarks/bench_transforms.py
	$(RUN)/python benchmarks/bench_algebra.py

docs: $(VENV)/installed  ## the documentation as a site, in site/
	$(RUN)/python -m pip install --quiet --editable '.[docs]' $(PINS)
	$(RUN)/mkdocs build --strict --quiet

constraints: $(VENV)/installed  ## write the installed versions to constraints.txt
	{ sed -n '/^#/p' constraints.txt; $(RUN)/pip freeze --exclude-editable | sed 's/ @ .*//; s/+.*$$//' | sort -f; } > constraints.new
	mv constraints.new constraints.txt

clean:  ## remove the environment and everything that was generated
	rm -rf $(VENV) site runs .mypy_cache .ruff_cache .pytest_cache .hypothesis
