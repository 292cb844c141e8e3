# What can be done here, one word each; everything is installed into .venv. `make help` lists the words.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
MAKEFLAGS += --no-print-directory --no-builtin-rules
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := install -qq --disable-pip-version-check --no-input -c constraints.txt
# Installs and shows what is downloaded, with sizes, and nothing else that goes well.
SHOWN := install --disable-pip-version-check --no-input --progress-bar off -c constraints.txt
ONLY_DOWNLOADS := sed -unE 's/^ *Downloading ([^ ]+\.(whl|tar\.gz|zip))( \(.*\))?$$/   \1\3/p'
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -q
CPP := $(wildcard native/*.cpp native/*/*.cpp native/*/*.h scripts/*.cpp)
NATIVE := CMakeLists.txt $(wildcard native/*.cpp native/*/*)

# Where there is a compiler, an error in the kernels is an error; where there is none, softly runs without them.
COMPILER := $(shell command -v "$${CXX:-c++}" || command -v g++ || command -v clang++)
export SOFTLY_REQUIRE_NATIVE ?= $(if $(COMPILER),1,0)
export PIP_ROOT_USER_ACTION := ignore

.PHONY: help run test test-all lint types coverage mutants bench docs wheel sdist cross asan install system-packages clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 24

# Those who only look around get the tour and no tools; where the tools are there already, nothing is installed.
run: $(if $(wildcard $(VENV)/.installed),install,$(VENV)/.tour)  ## see every capability once: runs `softly tour`
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
	@echo "== clang-format"
	@if [ -x $(BIN)/clang-format ]; then $(BIN)/clang-format --dry-run -Werror $(CPP) || \
	  { echo "run $(BIN)/clang-format -i $(CPP)"; exit 1; }; else echo "is not installed"; fi

types: install
	@echo "== mypy"
	@$(BIN)/mypy --no-error-summary

coverage: install  ## which lines the tests of `make test` reach, into build/coverage/index.html
	@echo "== tests with coverage"
	@$(PYTEST) -m "not slow" --cov=softly --cov=softly_lab --cov-report=term:skip-covered --cov-report=html:build/coverage

mutants: $(VENV)/.mutants  ## deliberate faults in some modules, and how many of them the tests notice
	@echo "== mutants"
	@OMP_NUM_THREADS=1 $(BIN)/python scripts/mutants

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
	@! $(BIN)/python -c "import auditwheel" 2>/dev/null || $(BIN)/python -m auditwheel show dist/*.whl

# The empty environment sees torch in .venv through a .pth file, and nothing of .venv's softly: that is a hook, which runs
# only where site-packages is the environment's own.
sdist: $(VENV)/.installed  ## build the source distribution, install it into an empty environment and try it there
	@echo "== source distribution"
	@rm -rf dist/*.tar.gz build/sdist-venv
	@$(BIN)/python -c "from scikit_build_core.build import build_sdist as b; print('dist/' + b('dist'))"
	@echo "== an empty environment, where it is compiled"
	@$(PYTHON) -m venv build/sdist-venv
	@realpath $(VENV)/lib/python*/site-packages > "$$(echo build/sdist-venv/lib/python*/site-packages)/deps.pth"
	@build/sdist-venv/bin/python -m pip $(INSTALL) --no-deps --no-build-isolation dist/*.tar.gz
	@cd build && sdist-venv/bin/python -I ../scripts/smoke-test

cross: $(VENV)/.cross  ## compile the kernels for Linux, macOS and Windows, and try them by qemu and Wine
	@echo "== other platforms"
	@$(BIN)/python scripts/cross

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
	@$(BIN)/pip $(SHOWN) torch numpy | $(ONLY_DOWNLOADS)
	@$(BIN)/pip $(SHOWN) scikit-build-core nanobind cmake ninja | $(ONLY_DOWNLOADS)
	@touch $@

$(VENV)/.installed: $(VENV)/.torch pyproject.toml $(NATIVE)
	@echo "== softly and its tools into $(VENV)"
	@$(BIN)/pip $(SHOWN) --no-build-isolation -C cmake.define.CMAKE_COMPILE_WARNING_AS_ERROR=ON \
	  -e '.[lab,test,dev]' | $(ONLY_DOWNLOADS)
	@touch $@

$(VENV)/.tour: $(VENV)/.torch pyproject.toml $(NATIVE)
	@echo "== softly and what the tour needs into $(VENV)"
	@$(BIN)/pip $(SHOWN) --no-build-isolation -e '.[lab]' | $(ONLY_DOWNLOADS)
	@touch $@

$(VENV)/.bench $(VENV)/.docs $(VENV)/.cross $(VENV)/.mutants: $(VENV)/.%: $(VENV)/.installed
	@echo "== packages for $*"
	@$(BIN)/pip $(SHOWN) --no-build-isolation -e '.[$*]' | $(ONLY_DOWNLOADS)
	@touch $@
