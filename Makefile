# Two commands do everything:  make paper   |   make test
PYTHON  ?= python3
VENV    ?= .venv
WORKERS ?= 2
HASHES  ?= yes

BIN   := $(VENV)/bin
STAMP := $(VENV)/.installed
AUDIT := $(VENV)-audit
LOCK  := lock/build.txt lock/cpu.txt lock/packages.txt lock/cuda.txt

# Stages of the pipeline call plain `python`, and notebooks start the kernel `python3`: both must be the venv's.
export PATH := $(abspath $(BIN)):$(PATH)
export DVC_NO_ANALYTICS := 1
unexport PYTHONPATH

.DEFAULT_GOAL := help
.PHONY: help paper lab evidence verify test mutants nightly torture book pdf browse lint tidy ci lock audit clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))
	@echo "  TIER=tiny|small|paper makes the paper at another size, in tiers/; PYTHON=python3.12 chooses the interpreter;"
	@echo "  HASHES= installs the same versions without comparing checksums, where torch comes from another index."
	@echo "  Measured on two cores: make paper installs in 2 min (2.5 GB), draws and builds the book in 5 min"
	@echo "  of two idle cores (0.2 GB); a second time, with nothing to do, it takes 3 s. TIER=tiny computes its"
	@echo "  runs: 10 to 35 min, 0.2 GB more."

paper: $(STAMP) ## install what is missing, run what is out of date, build the book
	$(BIN)/$(if $(TIER),python -m repro.tier $(TIER),dvc repro)

lab: $(STAMP) ## open the notebooks in JupyterLab, once the set-up is done
	$(BIN)/python -m repro.lab

evidence: $(STAMP) ## compute every stored run anew, which takes hours, and says how many; can be killed
	$(BIN)/python -m fedlib evidence compute --anew
	$(BIN)/python -m fedlib evidence pack --anew
	$(BIN)/dvc repro
	$(BIN)/python -m fedlib evidence pack

verify: $(STAMP) ## compute twenty stored runs anew, drawn at random, and compare; the book prints the answer
	$(BIN)/python -m fedlib evidence verify --sample 20 --seed $$(date +%j) --write

# A file stays in one process, so that its tests share what they cache.
test: $(STAMP) ## run the tests: two minutes of two cores
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile -m 'not nightly'

mutants: $(STAMP) ## break the code in 600 places, one at a time, and see whether the tests notice; ARGS=study: of one group
	OMP_NUM_THREADS=1 $(BIN)/python mutants --jobs $(WORKERS) $(ARGS)

nightly: ## what is too dear for every change: torture, all notebooks and pages, a network, wheel and locks, mutants; two hours
	$(PYTHON) .ci/steps.py nightly

torture: $(STAMP) ## try to break it and count: kills, full disks, damage, strangers; SHARE=.1 makes a tenth of the attempts
	OMP_NUM_THREADS=1 $(BIN)/python torture $(if $(SHARE),--share $(SHARE))

book: $(STAMP) ## build only the book, from the results that are there
	$(BIN)/python -m repro.bookbuild

pdf: $(STAMP) ## print the built book into book/_build/book.pdf; needs Chromium
	$(BIN)/python -m repro.pdf

browse: $(STAMP) ## look at the built book in Chromium: phone, dark, print, letters, accessibility, weight; ARGS=fedga.html: one page
	$(BIN)/python -m repro.browse $(if $(TIER),tiers/$(TIER)/)book/_build/html $(ARGS)

lint: $(STAMP) ## check source and notebooks with ruff, and the types of the public functions with mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

tidy: $(STAMP) ## mend and format what ruff can, and empty the notebooks of outputs
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	find notebooks -name '*.ipynb' -exec $(BIN)/nbstripout {} +

ci: ## what the continuous integration does: tests, lint, a notebook of each kind, the book, a browser; ten minutes
	.ci/run

lock: $(STAMP) ## write constraints.txt and lock/ anew; UPGRADE=1 takes the newest versions
	$(BIN)/python .ci/lock.py $(if $(UPGRADE),--upgrade)

audit: ## ask a public database which pinned packages have known vulnerabilities; ARGS= goes to pip-audit
	$(PYTHON) -m venv --clear $(AUDIT)
	$(AUDIT)/bin/python -m pip install -qq --require-hashes --no-deps -r lock/audit.txt
	$(AUDIT)/bin/pip-audit -s osv --disable-pip --require-hashes $(addprefix -r ,$(filter-out %cpu.txt,$(LOCK))) $(ARGS)

clean: ## remove .venv, .venv-audit, the built book and caches; runs/, tiers/ and results/ stay
	rm -rf .venv .venv-audit book/_build book/notebooks book/_assets/vendor .pytest_cache .ruff_cache .mypy_cache *.egg-info

# pip takes only files whose checksum stands in lock/; torch's build for processors where this machine has it. What comes as source is built with what is locked, too.
LOCKED := $(BIN)/python -m pip install -qq --require-hashes --no-deps
define INSTALL_LOCKED
	$(LOCKED) -r lock/build.txt
	$(LOCKED) -r lock/cpu.txt 2>/dev/null || true
	$(LOCKED) --no-build-isolation -r lock/packages.txt || { \
	  echo 'Not installed: see above. Where torch comes from another index on purpose, its files have other checksums: make HASHES=' >&2; exit 1; }
	$(BIN)/python -m pip install -qq --no-deps --no-build-isolation -e .
	if $(BIN)/python -m pip check | grep -Eq '^torch .* requires (cuda|nvidia|triton)'; then $(LOCKED) -r lock/cuda.txt; fi
endef
INSTALL_PINNED = $(BIN)/python -m pip install -qq -c constraints.txt -e '.[dev]'

# Debian without python3-venv has no ensurepip: there pip comes from the system's pip.
$(STAMP): pyproject.toml constraints.txt $(LOCK)
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' || { \
	  echo "fedlib needs Python 3.11, 3.12 or 3.13, and '$(PYTHON)' is: $$($(PYTHON) --version 2>&1)." >&2; \
	  echo "Name another one, for example: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || $(PYTHON) -m venv --without-pip --clear $(VENV)
	$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m pip --python $(BIN)/python install -qq pip
	@echo 'Installing the pinned packages into $(VENV): a few minutes the first time.'
	$(if $(HASHES),$(INSTALL_LOCKED),$(INSTALL_PINNED))
	@test -e .git || printf '[core]\n    no_scm = true\n' > .dvc/config.local  # an unpacked zip: DVC asks no git
	@touch $@
