# make sweep   measure soft-RoCE between two virtual nodes, and print the table
# make test    all tests; starts the soft-RoCE lab itself
# make check   format, lint, types, import order
# make bench   every benchmark; make bench-NAME for one
# make clean   remove what these targets made in this directory
#
# Each target installs what it needs: Debian packages (as root or with sudo, and only when one is
# missing) and a virtual environment in .venv.

SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= /usr/bin/python3
BIN := .venv/bin

BUILD_PACKAGES := gcc libc6-dev libibverbs-dev openssh-client python3-venv python3-pyverbs perftest
LAB_PACKAGES := qemu-system-x86 mmdebstrap erofs-utils busybox-static cpio kmod
PACKAGES := $(BUILD_PACKAGES) $(LAB_PACKAGES)
BENCHES := fidelity detection

.PHONY: help setup packages sweep test check format bench clean
help:
	@sed -n '1,/^$$/s/^# \{0,1\}//p' Makefile

setup: packages .venv/.ready

packages:
	@missing=""; \
	for p in $(PACKAGES); do \
	  [ "$$(dpkg-query -W -f='$${db:Status-Status}' $$p 2>/dev/null)" = installed ] || missing="$$missing $$p"; \
	done; \
	[ -z "$$missing" ] && exit 0; \
	if ! command -v apt-get >/dev/null; then \
	  echo "This machine is not Debian or Ubuntu. Install what these packages hold:$$missing" >&2; exit 1; \
	fi; \
	if [ "$$(id -u)" = 0 ]; then sudo=""; \
	elif command -v sudo >/dev/null; then sudo=sudo; \
	else echo "Run as root: apt-get install$$missing" >&2; exit 1; fi; \
	echo "installing:$$missing" >&2; \
	$$sudo apt-get update -qq >&2 && \
	$$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing >/dev/null

# The environment's own pyverbs is the distribution's: it must match the machine's rdma-core.
.venv/.ready: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q 'pip>=25.1'
	$(BIN)/python -m pip install -q -e . --group dev
	ln -sfn "$$($(PYTHON) -c 'import os, pyverbs; print(os.path.dirname(pyverbs.__file__))')" \
	  "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/pyverbs"
	touch $@

sweep: setup
	$(BIN)/rdmabench sweep --fabric rxe

test: setup
	$(BIN)/pytest

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(addprefix bench-,$(BENCHES))

bench-%: setup
	$(BIN)/python -m tests.bench.$*

clean:
	-[ -x $(BIN)/rdmabench ] && $(BIN)/rdmabench lab down
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist
