# Everything works on a fresh clone: each target installs what it needs into .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
OUT ?= out
MINUTES ?= 10

# Some virtual machines advertise AMX and trap on it, and bfloat16 products then die with SIGILL.
# This keeps oneDNN below AMX; set the variable yourself to choose otherwise.
export ONEDNN_MAX_CPU_ISA ?= AVX512_CORE_FP16

.PHONY: help install test test-all test-gpu fuzz soak lint format reproduce bench docs clean

help:
	@echo "make install    a virtual environment in $(VENV), everything pinned by constraints.txt"
	@echo "make test       the test suite (under 15 minutes on two cores)"
	@echo "make test-all   the slow tests too"
	@echo "make test-gpu   on a machine with a GPU: every backend there, right and how fast; one JSON in $(OUT)/gpu"
	@echo "make fuzz       the hypothesis tests with new examples for MINUTES=$(MINUTES); prints what was tried"
	@echo "make soak       training runs killed at random moments for MINUTES=$(MINUTES); prints what was survived"
	@echo "make lint       ruff, mypy, codespell"
	@echo "make reproduce  does the paper hold? minutes; the report in $(OUT)/report/report.html"
	@echo "make docs       the documentation site, in $(OUT)/site"
	@echo "make bench      speed and memory, side by side; results in $(OUT)/"

install: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=24"
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev,report,train,eval]"
	@touch $@

test: install
	$(BIN)/python -m pytest -n 2 -m "not slow" -q

test-all: install
	$(BIN)/python -m pytest -n 2 -q

test-gpu: install
	$(BIN)/iha bench gpu --out $(OUT)/gpu

fuzz: install
	HYPOTHESIS_PROFILE=fuzz PYTHONPATH=tests $(BIN)/python -m pytest -q -p fuzzing --fuzz-minutes $(MINUTES) $(TESTS)

soak: install
	$(BIN)/python tests/train/soak.py --minutes $(MINUTES) --out $(OUT)/soak.json

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/codespell

format: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

reproduce: install
	$(BIN)/iha reproduce --scale quick --out $(OUT)

docs: install
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[docs]"
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs $(OUT)/site

bench: install
	$(BIN)/iha bench attention --out $(OUT)/bench

clean:
	rm -rf $(VENV) $(OUT) build dist *.egg-info src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
