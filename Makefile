# Most users need only `make lab` and `make test`. tools/dev.py does the work, and runs without make too.
PYTHON ?= $(shell command -v python3 || command -v python || echo python3)
DEV = "$(PYTHON)" tools/dev.py

.PHONY: help lab test quick test-all stress bench docs format screenshot notebooks lock clean

help:
	@exec $(DEV) --help

lab:  ## set up and open JupyterLab with the first notebook; LAB_ARGS="--port=9999" adds arguments
	@exec $(DEV) lab

test:  ## set up and run the checks, with an eighth of the slow tests; PARTS="lint unit" runs some
	@exec $(DEV) test $(if $(PARTS),--only $(PARTS))

quick:  ## run the house tests, and the tests of the changed rooms, for about a minute
	@exec $(DEV) quick

test-all:  ## run all checks and slow tests, then the unit tests on every other Python found
	@exec $(DEV) test-all

stress:  ## run the stress tests at full length and print a table (up to 30 minutes); STRESS_ARGS adds arguments
	@exec $(DEV) stress $(STRESS_ARGS)

bench:  ## print the table of benchmarks; BENCH_ARGS adds arguments
	@exec $(DEV) bench $(BENCH_ARGS)

docs:  ## build the documentation in build/docs; it opens without a network
	@exec $(DEV) docs

format:  ## format the code
	@exec $(DEV) format

screenshot:  ## update the screenshot in the README
	@exec $(DEV) screenshot

notebooks:  ## run the notebooks and save their outputs; NOTEBOOKS="01_build_and_train.ipynb" names some
	@exec $(DEV) notebooks $(NOTEBOOKS)

lock:  ## write requirements.lock from fresh environments
	@exec $(DEV) lock

clean:  ## remove all generated files, environments included
	@exec $(DEV) clean
