# Millrace's commands. `make` lists them; each sets up what it needs first, which is quick when nothing changed.

.DEFAULT_GOAL := help
SHELL := bash
BIN := .venv/bin
# Test processes: one per core.
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
# A group of tests (tests/conftest.py) runs in one process; groups start in the order given there.
WORKERS = -n $(JOBS) --dist loadgroup --no-loadscope-reorder
# More for pytest (`make test ARGS="-k join"`), for the demo or for the benchmarks.
ARGS ?=
# The tests of the hardware: those of the folders that are there.
HW := $(wildcard tests/hw tests/hls tests/formal)
# `make hw` runs long checks of the hardware though nothing changed, and records those that passed (hw/checked.json).
HARDWARE ?= --all-hardware
# Those of boards, which need pynq's environment too.
BOARDS := $(wildcard tests/boards)

.PHONY: help setup demo test check pytest hw boards others bench plots pictures docs dist audit layers lock pynq pynqenv clean

help: ## list these commands
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | while IFS='|' read -r name text; do \
		printf 'make %-8s %s\n' "$$name" "$$text"; done

setup: ## make .venv, and install what the system lacks
	@bash tools/setup.sh

demo: setup ## run the main job on what this machine has
	@$(BIN)/millrace demo --spark $(ARGS)

test: ## everything that must pass: the tests, and the checks beside them
	@$(MAKE) --no-print-directory -j2 check pytest

check: setup ## lint, format and types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

pytest: setup pynqenv ## the tests alone
	@$(BIN)/python -m pytest $(WORKERS) $(ARGS)

hw: setup pynqenv ## the hardware alone: benches, coverage, HLS, and, changed or not, proofs, synthesis, bitstream
	@$(BIN)/python -m pytest $(WORKERS) $(HARDWARE) $(HW) $(BOARDS)/test_deploy_document.py $(ARGS)

boards: setup pynqenv ## boards: images, deploys, joins on simulated and loopback boards
	@$(BIN)/python -m pytest $(WORKERS) $(BOARDS) $(ARGS)

others: setup ## the tests that `make hw` and `make boards` leave out
	@$(BIN)/python -m pytest $(WORKERS) $(patsubst %,--ignore=%,$(HW) $(BOARDS)) $(ARGS)

bench: setup ## measure our work and its peers side by side
	@$(BIN)/millrace bench $(ARGS)

plots: setup ## draw the plots of docs/images from benchmark results and examples
	@$(BIN)/python tools/plot_panjoin.py $(ARGS)
	@$(BIN)/python tools/plot_inequality.py $(ARGS)
	@$(BIN)/python tools/plot_lookup.py $(ARGS)
	@$(BIN)/python examples/inequality_data_centres.py docs/images/spo-data-centres.svg
	@$(BIN)/python examples/inequality_taxi_bands.py docs/images/spo-taxi-bands.svg
	@$(BIN)/python examples/inequality_taxi_fares.py docs/images/spo-taxi-fares.svg
	@$(BIN)/python tools/plot_live.py $(ARGS)
	@$(BIN)/python tools/plot_scalejoin.py $(ARGS)

pictures: setup ## draw docs/images/rooms.svg, batch.svg, subwindows.svg and fpga-engine.svg
	@$(BIN)/python -m tools.draw_pictures

docs: setup ## build the site in build/site: warnings are errors, links are checked, pages are opened in Chromium
	@$(BIN)/python -m tools.site $(ARGS)

dist: setup ## build wheel and sdist in dist/, check them, and try them in empty environments
	@$(BIN)/python -m tools.dist $(ARGS)

audit: ## ask the advisory database about every pinned package
	@bash tools/audit.sh

layers: setup ## draw docs/images/layers.svg from the imports
	@$(BIN)/python tools/draw_layers.py

lock: ## renew constraints/*.txt from pyproject.toml (UPGRADE=1: newest versions)
	@bash tools/lock.sh

pynqenv:
	@bash tools/setup.sh pynq

pynq: pynqenv ## make .venv-pynq, for boards driven through PYNQ
	@.venv-pynq/bin/python -c 'import grpc, pynq; print("pynq", pynq.__version__, "grpcio", grpc.__version__)'

clean: ## remove builds and caches (the environments stay)
	@rm -rf build dist sdk/*.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	@find . -name __pycache__ -not -path './.venv*' -prune -exec rm -rf {} +
