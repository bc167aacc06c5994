# `make lab` and `make test` are all that is needed. Everything is done by tools/dev.py, which works without make too.
PYTHON ?= $(shell command -v python3 || command -v python || echo python3)
DEV = "$(PYTHON)" tools/dev.py

.PHONY: help lab test test-all bench format screenshot lock clean

help:
	@$(DEV) --help

lab:  ## set up and open JupyterLab on the first notebook; LAB_ARGS="--port=9999" adds arguments
	@$(DEV) lab

test:  ## set up and run every check; PARTS="lint unit" runs some
	@$(DEV) test $(if $(PARTS),--only $(PARTS))

test-all:  ## the same, then the unit tests on every further Python found
	@$(DEV) test-all

bench:  ## print the table of benchmarks; BENCH_ARGS adds arguments
	@$(DEV) bench $(BENCH_ARGS)

format:  ## put the code into the house's format
	@$(DEV) format

screenshot:  ## make the picture of the README anew
	@$(DEV) screenshot

lock:  ## write requirements.lock anew
	@$(DEV) lock

clean:  ## remove everything that is made, environments included
	@$(DEV) clean
