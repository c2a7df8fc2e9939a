# Every target makes what it needs: a fresh machine has Python 3.11+, make, and nothing else.
SHELL := bash
PYTHON ?= python3
UV_VERSION := 0.13.7
UV := $(shell command -v uv 2>/dev/null || echo .uv/bin/uv)
BIN := .venv/bin
export PYTHONWARNDEFAULTENCODING := 1
export GRPC_ENABLE_FORK_SUPPORT := 0
# Bytecode is kept whatever the shell says: the tests start this package hundreds of times.
unexport PYTHONDONTWRITEBYTECODE
# `make check SKIP_TESTS=1` leaves the tests out; `make test ARGS=...` passes words on.
export SKIP_TESTS
ARGS ?=

.PHONY: setup up tour web guests test check soak bench lock format generate screenshots clean

## setup: the virtual environment with everything locked
setup: .venv/.stamp

# What the installer has to say of its own code is nothing for whoever starts Bascule.
.uv/bin/uv: export PYTHONWARNDEFAULTENCODING :=
.uv/bin/uv:
	@echo "fetching the installer: uv $(UV_VERSION)"
	@$(PYTHON) -m venv .uv
	@.uv/bin/pip install --quiet --quiet --disable-pip-version-check uv==$(UV_VERSION)

.venv/.stamp: requirements-dev.lock pyproject.toml $(filter .uv/%,$(UV))
	@echo "preparing the environment: $$(grep -c '^[A-Za-z0-9].*==' requirements-dev.lock) packages, once; this may take a minute"
	@test -x $(BIN)/python || $(UV) venv --quiet --python $(PYTHON) .venv
	@$(UV) pip sync --quiet --compile-bytecode --require-hashes --python $(BIN)/python requirements-dev.lock
	@$(UV) pip install --quiet --no-deps --python $(BIN)/python --editable .
	@touch $@
	@echo "the environment is ready: .venv"

# Serving needs a part of that. It is added to what is there, so that `make setup` can follow.
.venv/.run: requirements.lock pyproject.toml $(filter .uv/%,$(UV))
	@echo "preparing what serving needs: $$(grep -c '^[A-Za-z0-9].*==' requirements.lock) packages, once"
	@test -x $(BIN)/python || $(UV) venv --quiet --python $(PYTHON) .venv
	@$(UV) pip install --quiet --require-hashes --python $(BIN)/python --requirements requirements.lock
	@$(UV) pip install --quiet --no-deps --python $(BIN)/python --editable .
	@touch $@

# Whether the development environment is there and fits: then nothing is installed.
SET_UP := $(shell test .venv/.stamp -nt requirements-dev.lock -a .venv/.stamp -nt pyproject.toml && echo yes)

# The installer that was fetched has uvx: servers that are started with it need nothing else.
up: export PATH := $(PATH):$(CURDIR)/.uv/bin
## up: the registry, its API and a node on this machine, with the bundled demo server; `make up ARGS=...`
up: $(if $(SET_UP),,.venv/.run)
	@$(BIN)/python -m bascule up $(ARGS)

## tour: a short walk with the bundled demo server
tour: setup
	@$(BIN)/python -m bascule tour

## web: the page of the web admin, from web/ into the package
web: setup
	@$(BIN)/python -m checks.web --write

# The compiler of the C guests has an environment of its own: it unpacks to 411 MB.
.venv-guests/.stamp: guests/requirements.lock $(filter .uv/%,$(UV))
	@echo "fetching the compiler of the guests, once"
	@test -x .venv-guests/bin/python || $(UV) venv --quiet --python $(PYTHON) .venv-guests
	@$(UV) pip sync --quiet --require-hashes --python .venv-guests/bin/python guests/requirements.lock
	@touch $@

## guests: the C guests of guests/, from their sources into the modules beside them
guests: setup .venv-guests/.stamp
	@$(BIN)/python -m checks.guests --write

# What makes src/bascule/wire/pb has an environment of its own: it is the oldest that is supported.
.venv-proto/.stamp: proto/requirements.lock $(filter .uv/%,$(UV))
	@test -x .venv-proto/bin/python || $(UV) venv --quiet --python $(PYTHON) .venv-proto
	@$(UV) pip sync --quiet --require-hashes --python .venv-proto/bin/python proto/requirements.lock
	@touch $@

# A driver for the browser of tests/browser; Bascule itself never needs it.
.venv/.browser: .venv/.stamp tests/browser/requirements.lock
	@$(UV) pip install --quiet --require-hashes --python $(BIN)/python --requirements tests/browser/requirements.lock
	@touch $@

## test: all tests, the long ones at a tenth of their count or less
test: setup .venv/.browser .venv-proto/.stamp
	@$(BIN)/python -m checks.run_tests $(ARGS)

## check: the gate
check: setup .venv/.browser .venv-proto/.stamp
	@$(BIN)/python -m checks.gate

## soak: the long forms; results go to bench/results/
soak: setup .venv/.browser .venv-proto/.stamp
	@$(BIN)/python -m checks.soak $(ARGS)

# Peers that the benchmarks measure beside Bascule; nothing else needs them.
.venv/.bench: .venv/.stamp requirements-bench.lock
	@$(UV) pip install --quiet --require-hashes --python $(BIN)/python --requirements requirements-bench.lock
	@touch $@

## bench: the figures; results go to bench/results/. `make bench AGAINST=REF` compares with a commit,
## `make bench ARGS="profile stdio"` says where the time of a call goes
bench: setup .venv/.bench .venv/.browser
	@$(BIN)/python -m bench $(if $(AGAINST),--against $(AGAINST)) $(ARGS)

## lock: renew the lock files (names, versions and hashes, no addresses)
lock: $(filter .uv/%,$(UV))
	@$(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url --no-emit-find-links pyproject.toml -o requirements.lock
	@$(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url --no-emit-find-links --constraints requirements-dev.lock pyproject.toml --extra scale --extra wasm -o deploy/requirements.lock
	@$(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url --no-emit-find-links pyproject.toml --group dev -o requirements-dev.lock
	@$(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url --no-emit-find-links pyproject.toml --group dev --group bench -o requirements-bench.lock
	@$(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url --no-emit-find-links --group guests -o guests/requirements.lock
	@$(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url --no-emit-find-links --group proto -o proto/requirements.lock
	@for peer in mcp-proxy fastmcp; do $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url --no-emit-find-links bench/peers/$$peer.in -o bench/peers/$$peer.lock || exit 1; done
	@$(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url --no-emit-find-links --constraints requirements-dev.lock tests/browser/requirements.in -o tests/browser/requirements.lock
	@for name in mcp1 frameworks; do $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url --no-emit-find-links tests/doors/gateway/clients/$$name.in -o tests/doors/gateway/clients/$$name.lock || exit 1; done

## screenshots: every screen, light and dark, into docs/images/
screenshots: setup .venv/.browser
	@$(BIN)/python -m tests.browser.screenshots $(ARGS)

format: setup
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

## generate: files that are made from the source and committed
generate: setup .venv-proto/.stamp
	@$(BIN)/python -m checks.protobuf --write
	@$(BIN)/python -m checks.generated --write

clean:
	rm -rf .venv .venv-guests .venv-proto .uv .pytest_cache .ruff_cache .hypothesis
