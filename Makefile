# `make demo` and `make test` are all a newcomer needs. Both install into .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check
INSTALLED := $(VENV)/installed
NATIVE := $(wildcard native/*/*.* native/*/*/*.*) CMakeLists.txt

.PHONY: help install demo docs test lint types unit fuzz arm chaos bench wheel flower clean

help:  ## show this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

install: $(INSTALLED)  ## install into .venv, with the compiled kernels if there is a compiler

# Editable: Python sources are used in place, kernels are rebuilt when they change.
$(INSTALLED): pyproject.toml constraints.txt $(NATIVE)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install -q -c constraints.txt torch
	$(PIP) install -q -c constraints.txt -e '.[dev]'
	touch $@

DEMO := runs/demo
demo: install  ## train digits uncompressed, with the paper's codec, and all compressed; compare and report
	rm -rf $(DEMO)
	@for run in "none:uncompressed" "ms:the paper's codec, smashed data only" "ems:everything compressed"; do \
	  echo "Training digits with ten clients: $${run#*:}"; \
	  $(BIN)/cutlayer train --recipe demo/digits-$${run%%:*} --out $(DEMO)/$${run%%:*} --quiet || exit 1; \
	done
	@$(BIN)/cutlayer compare $(DEMO)/none $(DEMO)/ms $(DEMO)/ems
	@$(BIN)/cutlayer report $(DEMO)/none $(DEMO)/ms $(DEMO)/ems --out $(DEMO)/report.html

# What the site needs is installed by name, because installing cutlayer again would build the kernels again.
DOCS := $(VENV)/docs-installed
$(DOCS): pyproject.toml constraints.txt
	$(PIP) install -q -c constraints.txt $$($(BIN)/python -c "import tomllib; \
	  print(*tomllib.load(open('pyproject.toml', 'rb'))['project']['optional-dependencies']['docs'])")
	touch $@

docs: install $(DOCS)  ## the documentation site in build/site; a broken link or an undocumented name fails
	$(BIN)/python -m website.stage
	$(BIN)/python -m zensical build --strict --clean
	@echo "build/site/index.html; to search, serve it: $(BIN)/python -m http.server -d build/site 8000"

test: lint types unit  ## everything that CI checks

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: install
	$(BIN)/mypy

unit: install
	$(BIN)/pytest -n 3 --dist worksteal -rs

fuzz: install  ## a million damaged frames under AddressSanitizer and UBSan, 20,000 lying peers
	$(BIN)/python tests/fuzz/sanitized.py --frames 1000000
	$(BIN)/python tests/fuzz/protocol.py --sequences 20000

arm: install  ## the kernels for arm64 by Debian's cross compiler, under qemu-user: golden frames and agreement
	$(BIN)/python tests/arm/run.py

CHAOS_SECONDS ?= 240
chaos: install  ## minutes of kills, freezes, resets and damaged bytes, on clients and server
	CHAOS_SECONDS=$(CHAOS_SECONDS) $(BIN)/pytest tests/integration/test_chaos.py tests/integration/test_ranks_chaos.py

bench: install  ## speed as ratios to memcpy, written to benchmarks/results
	$(BIN)/python benchmarks/codecs.py --save

# auditwheel says for which Linux systems a wheel is good, and puts what they lack into it.
wheel: install  ## sdist and wheel in dist/, the wheel tried in an empty environment without compiler and PyTorch
	rm -rf dist build/wheel
	$(BIN)/python -m build --outdir build/wheel
	mkdir -p dist && mv build/wheel/*.tar.gz dist/
	if [ "$$(uname -s)" = Linux ]; then \
	  PATH="$(abspath $(BIN)):$$PATH" $(BIN)/auditwheel repair -w dist build/wheel/*.whl; \
	else mv build/wheel/*.whl dist/; fi
	$(BIN)/python tests/wheel/check.py dist/*.whl

# Flower asks for earlier releases of Typer and protobuf than .venv has. Its environment shares nothing with that one.
FLOWER := build/flower
$(FLOWER)/installed: pyproject.toml constraints.txt $(wildcard dist/*.whl)
	@test -n "$(wildcard dist/*.whl)" || { echo "there is no wheel in dist/; make wheel first" >&2; exit 1; }
	test -x $(FLOWER)/bin/python || $(PYTHON) -m venv $(FLOWER)
	$(FLOWER)/bin/pip --disable-pip-version-check install -q -c constraints.txt torch
	$(FLOWER)/bin/pip --disable-pip-version-check install -q -c constraints.txt \
	  "$(firstword $(wildcard dist/*.whl))[flower]" 'flwr[simulation]' pytest
	$(FLOWER)/bin/pip --disable-pip-version-check install -q --no-deps --force-reinstall $(firstword $(wildcard dist/*.whl))
	touch $@

flower: $(FLOWER)/installed  ## the Flower app, also by `flwr run` in its simulation, with the wheel of make wheel
	$(FLOWER)/bin/python -m pytest --noconftest -o addopts=-q -o filterwarnings=default -rs tests/integrations/test_flower.py

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
