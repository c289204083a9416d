PYTHON ?= python3
VENV := .venv

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help digits docs check test lowest next soak peers lint clean

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 10

digits: $(VENV)/.installed-train ## train on handwritten digits, report in runs/digits
	$(VENV)/bin/python -m train.finetune --dataset=digits --run_dir=runs/digits

docs: $(VENV)/.installed-docs ## build the documentation into docs/_build/html
	$(VENV)/bin/python -m sphinx -W --keep-going -n -b html docs docs/_build/html

check: lint ## check style and types, and run the fast tests of what changed: for every day
	@tests="$$($(VENV)/bin/python tests/changed.py)"; \
	if [ -z "$$tests" ]; then echo "No file with tests has changed since main."; else \
	$(VENV)/bin/python -m pytest -q --numprocesses=2 --dist=loadfile -m "not (slow or soak)" $$tests; fi

test: lint ## check style and types, and run all tests, the slow ones too
	$(VENV)/bin/python -m pytest --numprocesses=2 --dist=loadfile --no-loadscope-reorder

lowest: ## run the fast tests with the lowest releases that setup.cfg allows, in .venv-lowest
	$(MAKE) VENV=.venv-lowest .venv-lowest/.made
	@# pip refuses two bounds of one package, and one that is no release.
	sed -nE 's/^ +([A-Za-z0-9_-]+)>=([A-Za-z0-9.]+).*/\1==\2/p' setup.cfg | sort -u > .venv-lowest/constraints.txt
	.venv-lowest/bin/python -m pip install --quiet --disable-pip-version-check --constraint=.venv-lowest/constraints.txt --editable '.[test]'
	.venv-lowest/bin/python -m pytest -q -m "not (slow or soak)"

next: ## run the fast tests with pre-releases of TensorFlow and Keras, in .venv-next
	$(MAKE) VENV=.venv-next .venv-next/.installed-test
	.venv-next/bin/python -m pip install --quiet --disable-pip-version-check --pre --upgrade tensorflow
	@# keras-nightly has the files of keras, which must not be mixed.
	.venv-next/bin/python -m pip uninstall --quiet --yes keras
	.venv-next/bin/python -m pip install --quiet --disable-pip-version-check --pre --no-deps --force-reinstall keras-nightly
	.venv-next/bin/python -m pytest -q -m "not (slow or soak)"

soak: $(VENV)/.installed-test ## run what CI leaves out: all benchmarks, and kills of runs
	$(VENV)/bin/python -m pytest -m soak

peers: $(VENV)/.installed-benchmarks $(VENV)/.installed-test ## compare with PyTorch, timm, transformers, keras-hub and cleanlab, installed for it
	$(VENV)/bin/python -m pytest -m peers

lint: $(VENV)/.installed-test ## check the style and the types of the code
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy

clean: ## remove .venv, .venv-lowest, .venv-next and caches; runs/ stays
	rm -rf $(VENV) .venv-lowest .venv-next .pytest_cache .mypy_cache .ruff_cache build *.egg-info
	find . \( -name .git -o -name runs \) -prune -o -name __pycache__ -print0 | xargs -0 rm -rf

# A stamp appears only after its step is whole, so a killed one is done again.
$(VENV)/.made:
	@command -v $(PYTHON) >/dev/null || { echo "There is no $(PYTHON): install Python 3.11 to 3.13, or name one with PYTHON=/path/to/python." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' || { echo "$(PYTHON) is $$($(PYTHON) --version 2>&1), not Python 3.11 to 3.13: name another with PYTHON=/path/to/python." >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "$(PYTHON) has no venv module: install it (Debian: apt-get install python3-venv), or name another Python with PYTHON=/path/to/python." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@# A pip of years ago resolves our dependencies for hours.
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	@touch $@

$(VENV)/.installed-%: $(VENV)/.made setup.cfg
	@echo "Installing keras_vit[$*] into $(VENV): a minute, or some with a slow connection."
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[$*]'
	@touch $@
