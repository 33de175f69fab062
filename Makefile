# Everything runs in .venv, which is made on first use. Needs make and Python >= 3.11 alone;
# another interpreter: `make PYTHON=python3.12 run`.
PYTHON ?= python3
VENV ?= .venv
ARGS ?=

PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed

# $(call pip_install,PYTHON,WHAT): in silence, unless it fails.
pip_install = log=$$(mktemp) && { $(1) -m pip --disable-pip-version-check install \
	--constraint constraints.txt $(2) >"$$log" 2>&1 || { cat "$$log" >&2; rm "$$log"; exit 1; }; } \
	&& rm "$$log"

.DEFAULT_GOAL := help
.PHONY: run test lint types nojit wheel-check bench train results paper assumptions robustness known distance clean help
.NOTPARALLEL:
.DELETE_ON_ERROR:

run: $(STAMP)-core ## compare BACE-Pipe with all baselines; more options: make run ARGS="--episodes 5"
	@$(PY) -m eval.compare --policy bace $(ARGS)

test: $(STAMP)-test ## run the tests; a selection: make test ARGS="tests/test_packaging.py -x"
	@$(PY) -m pytest $(ARGS)

nojit: $(STAMP)-test ## run the tests without compiling, as plain Python
	@NUMBA_DISABLE_JIT=1 $(PY) -m pytest -m "not jit" $(ARGS)

lint: $(STAMP)-dev ## check style and formatting
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .

types: $(STAMP)-dev ## check the types
	@$(PY) -m mypy

# The wheel is built from the sdist (what `build` does by default), so that neither a stale build/
# nor a file outside the packages can hide an incomplete one; it runs where no checkout is in reach.
wheel-check: $(STAMP)-dev ## build the wheel, install it elsewhere and run it there
	@tmp=$$(mktemp -d) && trap 'rm -rf "$$tmp"' EXIT && unset PYTHONPATH \
	&& echo "Building the wheel ..." \
	&& { $(PY) -m build --outdir "$$tmp/dist" . >"$$tmp/build.log" 2>&1 \
	     || { cat "$$tmp/build.log" >&2; exit 1; }; } \
	&& echo "Installing it into a fresh environment ..." \
	&& $(PY) -m venv "$$tmp/venv" \
	&& $(call pip_install,"$$tmp/venv/bin/python","$$tmp"/dist/*.whl) \
	&& mkdir "$$tmp/elsewhere" && cd "$$tmp/elsewhere" \
	&& "$$tmp/venv/bin/bace-compare" --help >/dev/null \
	&& "$$tmp/venv/bin/python" -m eval.compare --policy bace --episodes 3 \
	&& echo "The installed wheel works."

bench: $(STAMP)-core ## run the benchmarks
	@set -e; for script in benchmarks/*.py; do \
	  [ -e "$$script" ] || { echo "benchmarks/ holds no script"; exit 1; }; \
	  echo "== $$script"; $(PY) "$$script" $(ARGS); \
	done

train: $(STAMP)-test ## train a scheduler into runs/; shorter: make train ARGS="--total-steps 100000"
	@$(PY) -m train.ppo $(ARGS)

results: $(STAMP)-test ## measure the learned scheduler anew: docs/results.md
	@$(PY) -m eval.results $(ARGS)

# Both halves are written elsewhere first: a failure leaves the old document whole.
robustness: $(STAMP)-core ## regenerate docs/robustness.md and its plots (2 minutes)
	@tmp=$$(mktemp -d) && trap 'rm -rf "$$tmp"' EXIT \
	&& $(PY) -m eval.robustness --check --out "$$tmp/run" $(ARGS) \
	&& $(PY) benchmarks/overhead.py --plot "$$tmp/overhead.png" --markdown "$$tmp/overhead.md" \
	&& cat "$$tmp/run/report.md" "$$tmp/overhead.md" >"$$tmp/robustness.md" \
	&& cp "$$tmp/robustness.md" "$$tmp/run/robustness.png" "$$tmp/overhead.png" docs/

SEARCH := $(if $(wildcard docs/assumptions/summary.json),--search docs/assumptions/summary.json)

# A folder of its own first: an interrupt leaves the docs as they were.
paper: $(STAMP)-core ## reproduce the paper into docs/ (minutes); shorter: make paper ARGS="--episodes 20"
	@set -e; tmp=$$(mktemp -d); trap 'rm -rf "$$tmp"' EXIT; \
	$(PY) -m eval.paper --out "$$tmp/run" --workers 2 $(SEARCH) $(ARGS); \
	mkdir -p docs/reproduction; cp "$$tmp"/run/reproduction/* docs/reproduction/; \
	cp "$$tmp/run/reproduction.md" docs/; echo "Wrote docs/reproduction.md."

# Goes on where it was interrupted. Then `make paper`, as the preset may have changed.
assumptions: $(STAMP)-core ## search for the preset paper-fitted (10-25 minutes) and write docs/assumptions.md
	@set -e; $(PY) -m eval.paper --assumptions --out runs/assumptions --workers 2 $(ARGS); \
	mkdir -p docs/assumptions; cp runs/assumptions/assumptions/* docs/assumptions/; \
	cp runs/assumptions/assumptions.md docs/; \
	cp runs/assumptions/paper-fitted.toml bace_env/presets/; \
	echo "Wrote docs/assumptions.md and bace_env/presets/paper-fitted.toml."

known: $(STAMP)-core ## search for the best schedules known, stored in eval/known (15 minutes)
	@$(PY) -m eval.best_known --workers 2 $(ARGS)

distance: $(STAMP)-test ## regenerate docs/distance.md: every policy's gap to the best (10 minutes)
	@$(PY) -m eval.distance --policy search --policy ppo --workers 2 --out docs/distance.md $(ARGS) >/dev/null

clean: ## remove caches and build products (compiled kernels too); keeps .venv and runs/
	@rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage
	@find . -path './$(VENV)' -prune -o -name __pycache__ -prune -exec rm -rf {} +

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' Makefile

$(PY):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  found=$$($(PYTHON) --version 2>&1) || found=missing; \
	  echo "bace-env needs Python >= 3.11, but $(PYTHON) is $$found:" \
	    "name another, as in 'make PYTHON=python3.12 $(or $(MAKECMDGOALS),run)'" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

# Order-only on the interpreter: installs are redone only when what is to be installed has changed.
$(STAMP)-core: pyproject.toml constraints.txt | $(PY)
	@echo "Installing bace-env into $(VENV) (about a minute the first time) ..."
	@$(call pip_install,$(PY),--editable '.')
	@touch $@

$(STAMP)-test: pyproject.toml constraints.txt | $(PY)
	@echo "Installing bace-env and what its tests need into $(VENV) ..."
	@$(call pip_install,$(PY),--editable '.[test]')
	@touch $(STAMP)-core $@

$(STAMP)-dev: pyproject.toml constraints.txt | $(PY)
	@echo "Installing bace-env and its development tools into $(VENV) ..."
	@$(call pip_install,$(PY),--editable '.[dev]')
	@touch $(STAMP)-core $(STAMP)-test $@
