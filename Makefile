# What can be done here, one word each; everything is installed into .venv. `make help` lists the words.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
MAKEFLAGS += --no-print-directory --no-builtin-rules
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := install -qq --disable-pip-version-check --no-input -c constraints.txt
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -q
NATIVE := CMakeLists.txt $(wildcard native/*.cpp native/*/*)

# Where there is a compiler, an error in the kernels is an error; where there is none, softly runs without them.
COMPILER := $(shell command -v "$${CXX:-c++}" || command -v g++ || command -v clang++)
export SOFTLY_REQUIRE_NATIVE ?= $(if $(COMPILER),1,0)
export PIP_ROOT_USER_ACTION := ignore

.PHONY: help run test test-all lint types bench docs wheel asan install system-packages clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 24

run: install  ## see every capability once: runs `softly tour`
	@echo "== the tour"
	@$(BIN)/softly tour

test: system-packages lint types  ## lint, types, and the tests that take no longer than seconds
	@echo "== tests"
	@$(PYTEST) -m "not slow"

test-all: system-packages lint types  ## the slow tests too
	@echo "== all tests"
	@$(PYTEST)

lint: install
	@echo "== ruff"
	@$(BIN)/ruff check -q .
	@$(BIN)/ruff format -q --check . || { echo "run $(BIN)/ruff format"; exit 1; }

types: install
	@echo "== mypy"
	@$(BIN)/mypy --no-error-summary

bench: $(VENV)/.bench  ## measure softly against its peers, as ratios in one run
	@echo "== benchmarks"
	@$(BIN)/python -m benchmarks

docs: $(VENV)/.docs  ## build the documentation into site/
	@echo "== documentation"
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build -q --strict
	@echo "site/index.html"

wheel: $(VENV)/.installed  ## build the wheel, install it into an empty environment and try it there
	@echo "== wheel"
	@rm -rf dist build/wheel-venv
	@$(BIN)/pip wheel -qq --disable-pip-version-check --no-deps --no-build-isolation -w dist .
	@echo "== an empty environment with $$(ls dist/*.whl)"
	@$(PYTHON) -m venv build/wheel-venv
	@build/wheel-venv/bin/pip $(INSTALL) dist/*.whl
	@cd build && wheel-venv/bin/python -I ../scripts/smoke-test

# The sanitizers' runtime has to be loaded before Python. The environment sees the packages of .venv through a
# .pth file, which unlike a second installation takes no time, and does not run .venv's editable hook. pytest must
# not capture file descriptors, since a report goes to one before the process ends.
# The sanitizer's allocator takes no care of forks: a lock that another thread holds stays locked in the child.
asan: $(VENV)/.installed  ## run the tests of the kernels under the address and undefined behaviour sanitizers
	@echo "== building with sanitizers"
	@test -d build/asan-venv || $(PYTHON) -m venv build/asan-venv
	@realpath $(VENV)/lib/python*/site-packages > "$$(echo build/asan-venv/lib/python*/site-packages)/deps.pth"
	@build/asan-venv/bin/python -m pip $(INSTALL) --no-deps --no-build-isolation --force-reinstall \
	  -C build-dir=build/asan -C install.strip=false -C cmake.define.SOFTLY_SANITIZE=ON .
	@echo "== tests under sanitizers"
	@LD_PRELOAD="$$(g++ -print-file-name=libasan.so) $$(g++ -print-file-name=libubsan.so)" \
	  ASAN_OPTIONS=detect_leaks=0 build/asan-venv/bin/python -m pytest -q --capture=sys -m native tests \
	  --deselect tests/test_parallel.py::test_pool_works_in_a_forked_child

system-packages:  ## install the Debian packages that some tests use, where that is possible
	@scripts/debian-packages

clean:  ## remove everything that was built or installed here
	@echo "== removing what was built"
	@rm -rf $(VENV) build dist site softly-tour .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@find . -name __pycache__ -prune -exec rm -rf {} +

install: $(VENV)/.installed

$(VENV)/.torch: constraints.txt
	@echo "== torch into $(VENV) (takes a minute the first time)"
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
	@$(BIN)/pip $(INSTALL) torch numpy
	@$(BIN)/pip $(INSTALL) scikit-build-core nanobind cmake ninja
	@touch $@

$(VENV)/.installed: $(VENV)/.torch pyproject.toml $(NATIVE)
	@echo "== softly and its tools into $(VENV)"
	@$(BIN)/pip $(INSTALL) --no-build-isolation -C cmake.define.CMAKE_COMPILE_WARNING_AS_ERROR=ON -e '.[lab,test,dev]'
	@touch $@

$(VENV)/.bench $(VENV)/.docs: $(VENV)/.%: $(VENV)/.installed
	@echo "== packages for $*"
	@$(BIN)/pip $(INSTALL) --no-build-isolation -e '.[$*]'
	@touch $@
