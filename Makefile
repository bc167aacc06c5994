# `make lab` and `make test` are all that is needed. Everything is done by tools/dev.py, which works without make too.
PYTHON ?= $(shell command -v python3 || command -v python || echo python3)
DEV = "$(PYTHON)" tools/dev.py

.PHONY: help lab test test-all stress bench format screenshot notebooks lock clean

help:
	@exec $(DEV) --help

lab:  ## set up and open JupyterLab on the first notebook; LAB_ARGS="--port=9999" adds arguments
	@exec $(DEV) lab

test:  ## set up and run every check; PARTS="lint unit" runs some
	@exec $(DEV) test $(if $(PARTS),--only $(PARTS))

test-all:  ## the same, then the unit tests on every further Python found
	@exec $(DEV) test-all

stress:  ## run the stress tests at full length and print their table (up to 30 minutes); STRESS_ARGS adds arguments
	@exec $(DEV) stress $(STRESS_ARGS)

bench:  ## print the table of benchmarks; BENCH_ARGS adds arguments
	@exec $(DEV) bench $(BENCH_ARGS)

format:  ## put the code into the house's format
	@exec $(DEV) format

screenshot:  ## make the picture of the README anew
	@exec $(DEV) screenshot

notebooks:  ## run the notebooks and keep their new outputs; NOTEBOOKS="01_build_and_train.ipynb" names some
	@exec $(DEV) notebooks $(NOTEBOOKS)

lock:  ## write requirements.lock anew
	@exec $(DEV) lock

clean:  ## remove everything that is made, environments included
	@exec $(DEV) clean
