# `make help` lists the targets. Each target sets up its virtual environment if it does not exist.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
JOBS ?= 2
FEW ?= 1
SPARKS ?= 3.5 4.0 4.1
QUICK_SPARKS := 3.5 4.0
SPARK_TESTS ?= tests/spark/test_versions.py
FUZZ_FILES := $(addprefix tests/,aggr/test_fuzz.py aggr/test_buckets.py aggr/test_groups.py store/test_store_fuzz.py)
CLUSTERS := $(patsubst constraints-%.txt,%,$(wildcard constraints-databricks-*.txt))
PYTHONS ?= 3.12 3.13
# Tests of pages and processes. Tests of versions leave them out, because the other tests call the same functions of
# Python and of libraries.
OTHER_TESTS := $(addprefix tests/,cli conformance docs serve spark)
# Without --no-compile, pip compiles every module of every package, which is a third of its time. Instead, Python
# compiles modules when they are imported. It must be able to store them, so the variable, which many container images
# set, is unset.
unexport PYTHONDONTWRITEBYTECODE
INSTALL := -m pip install -qq --disable-pip-version-check --no-compile --constraint
# Each environment has its own tiltframe.egg-info, because several environments may be set up at the same time.
OWN_METADATA = printf '[egg_info]\negg_base = %s\n' "$(CURDIR)/$(@D)" >$(@D)/build.cfg && DIST_EXTRA_CONFIG="$(CURDIR)/$(@D)/build.cfg"
PYTEST := $(BIN)/python -m pytest -n $(JOBS) --dist worksteal

# Tests that failed run again, one at a time. Spark waits ten seconds for a worker, which may be too short while more
# tests run than the machine has cores.
RETRY_FAILED = echo "tests that failed run again, alone:" && $(BIN)/python -m pytest --last-failed --maxfail 1 -v

# Warnings are not errors here, because old libraries use deprecated functions of each other and of Python.
QUICK_PYTEST_ARGUMENTS = -m pytest -n $(JOBS) --dist worksteal -o filterwarnings=default -m "not spark and not slow and not long" --few 1 \
  $(OTHER_TESTS:%=--ignore %) tests aggr windows tiltframe

.DEFAULT_GOAL := help
.PHONY: help generate demo test test-all test-core test-oldest test-oldest-quick test-clusters test-pythons test-spark-versions test-spark-versions-quick test-spark-pages bench-spark-versions environments fast fuzz mutation prometheus lint types docs extras pages bench report dist java clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

demo: ## Roll up a year of real flights with Spark, or with Sail if Java is not installed, and query two levels
	@if java -version >/dev/null 2>&1; then $(MAKE) --no-print-directory $(READY) && $(BIN)/tiltframe demo; \
	else $(MAKE) --no-print-directory .venv-sail/.ready && .venv-sail/bin/tiltframe demo; fi

.venv-sail/.ready: pyproject.toml constraints.txt
	@echo "Java is not installed; setting up .venv-sail, with Sail in the place of Spark …"
	@$(PYTHON) -m venv .venv-sail
	@grep -v '^pyspark==' constraints.txt >.venv-sail/constraints.txt
	@.venv-sail/bin/python $(INSTALL) .venv-sail/constraints.txt --editable '.[demo-sail]'
	@touch $@

test: java $(VENV)/spark.jsa ## Run a representative part of the tests of every folder (six minutes on two cores; JOBS=1 for one process)
	@$(PYTEST) -m "not long" --few $(FEW)

test-all: java $(VENV)/.docs $(VENV)/spark.jsa fuzz ## Run all tests, also the long ones: killed processes, several engines, pages, random trials (SHARE=1/3 for a third of the long tests, as in CI)
	@$(PYTEST) $(FUZZ_FILES:%=--ignore %) $(SHARE:%=--share %) --durations=25 || { [ $$? -eq 1 ] && $(RETRY_FAILED); }

test-core: $(READY) ## Copy the core without its extensions, and run its fast tests in the copy
	@$(BIN)/python -m tests.core.export

test-oldest: java .venv-oldest/.ready ## Run a part of the tests with the oldest allowed version of each library, without Spark and with it
	@.venv-oldest/bin/python -m pytest -n $(JOBS) --dist worksteal -o filterwarnings=default \
	  -m "not spark and not long" --few 3 tests aggr windows tiltframe
	@.venv-oldest/bin/python -m pytest -o filterwarnings=default tests/spark/test_versions.py

test-oldest-quick: .venv-oldest/.ready ## Run the tests of test-oldest without Spark, without slow tests and with one parameter each
	@.venv-oldest/bin/python $(QUICK_PYTEST_ARGUMENTS)

test-clusters: $(CLUSTERS:%=test-cluster-%) ## Run the tests of test-oldest-quick with the libraries of newer Databricks clusters, constraints-databricks-*.txt

test-cluster-%: .venv-%/.ready
	@.venv-$*/bin/python $(QUICK_PYTEST_ARGUMENTS)

.PRECIOUS: .venv-databricks-%/.ready
.venv-databricks-%/.ready: pyproject.toml constraints-databricks-%.txt Makefile
	@version=$$(sed -n 's/^# Python //p' constraints-databricks-$*.txt); \
	  python=$$(.ci/find_python $$version) || { echo "Python $$version is not installed." >&2; exit 1; }; \
	  $$python -m venv .venv-databricks-$*
	@$(OWN_METADATA) .venv-databricks-$*/bin/python $(INSTALL) constraints-databricks-$*.txt --editable '.[test]' pytest-xdist
	@touch $@

test-spark-versions: $(SPARKS:%=test-spark-%) ## Run the tests that every version of Spark must pass, on the newest patch of each version in SPARKS

# Tests that failed run again, one at a time, as in test-all. Each version has its own list of failed tests.
PYTEST_OF_SPARK = .venv-spark-$*/bin/python -m pytest -o filterwarnings=default -o cache_dir=.venv-spark-$*/.pytest_cache

test-spark-%: java .venv-spark-%/.ready
	@echo "PySpark $*" && $(PYTEST_OF_SPARK) $(SPARK_TESTS) || { [ $$? -eq 1 ] && $(PYTEST_OF_SPARK) --last-failed --maxfail 1 -v $(SPARK_TESTS); }

test-spark-versions-quick: ## Run a part of test-spark-versions on PySpark 3.5 and 4.0 at the same time, with one process each
	@$(MAKE) --no-print-directory --jobs $(JOBS) --output-sync test-spark-versions SPARKS="$(QUICK_SPARKS)" \
	  SPARK_TESTS='tests/spark/test_versions.py -k "not bits_are"'

test-spark-pages: $(QUICK_SPARKS:%=test-pages-on-%) ## Follow the pages for users of Spark word for word on PySpark 3.5 and 4.0

test-pages-on-%: java .venv-spark-%/.pages
	@echo "PySpark $*" && .venv-spark-$*/bin/python -m pytest -o filterwarnings=default tests/docs/test_spark_pages.py

bench-spark-versions: $(QUICK_SPARKS:%=bench-spark-%) ## Compare files to answers with Spark's own aggregates on PySpark 3.5 and 4.0

bench-spark-%: java .venv-spark-%/.pages
	@.venv-spark-$*/bin/python -m benchmarks.spark_versions --out benchmarks/results/spark_versions.json

.PRECIOUS: .venv-spark-%/.pages
.venv-spark-%/.pages: .venv-spark-%/.ready
	@$(OWN_METADATA) .venv-spark-$*/bin/python $(INSTALL) .venv-spark-$*/constraints.txt --editable '.[cli,plot]'
	@touch $@

# PySpark 3.5 is installed without the extra of Spark Connect, whose server it lacks. With this extra, pip would install
# PySpark 3.5.1, because newer patches of 3.5 require numpy 1 for it.
.PRECIOUS: .venv-spark-%/.ready
.venv-spark-%/.ready: pyproject.toml constraints.txt
	@$(PYTHON) -m venv .venv-spark-$*
	@grep -vE '^(pyspark|pyspark-client|py4j)==' constraints.txt >.venv-spark-$*/constraints.txt
	@$(OWN_METADATA) .venv-spark-$*/bin/python -m pip install --quiet --disable-pip-version-check --no-compile \
	  --constraint .venv-spark-$*/constraints.txt --editable '.[spark-local,delta,sketches]' 'pyspark$(if $(filter 3.5,$*),,[connect])==$*.*' pytest hypothesis
	@touch $@

test-pythons: ## Run the fast tests, with one parameter each, on each version of Python in PYTHONS that is installed (pyenv, or on the PATH)
	@for version in $(PYTHONS); do \
	  if python=$$(.ci/find_python $$version); then \
	    echo "Python $$version:"; \
	    $(MAKE) --no-print-directory fast FEW=1 LEAVE_OUT="$(OTHER_TESTS)" PYTHON=$$python VENV=.venv-$$version || exit 1; \
	  else echo "Python $$version is not installed."; fi; \
	done

environments: ## Set up the virtual environments of the quick tests of versions
	@$(MAKE) --no-print-directory --jobs $(JOBS) .venv-oldest/.ready $(QUICK_SPARKS:%=.venv-spark-%/.ready) \
	  $(PYTHONS:%=environment-%)

environment-%:
	@if python=$$(.ci/find_python $*); then \
	  $(MAKE) --no-print-directory .venv-$*/.ready PYTHON=$$python VENV=.venv-$*; fi

.venv-oldest/.ready: pyproject.toml constraints-oldest.txt Makefile
	@$(PYTHON) -m venv .venv-oldest
	@$(OWN_METADATA) .venv-oldest/bin/python $(INSTALL) constraints-oldest.txt --editable '.[test]' pytest-xdist
	@touch $@

fast: $(READY) ## Run the quick tests without Spark and without stores, with one parameter each (a minute)
	@$(PYTEST) -m "not spark and not slow and not store and not long" --few $(FEW) \
	  --ignore tests/cli/test_bad_inputs.py $(LEAVE_OUT:%=--ignore %) -x tests aggr windows tiltframe

$(VENV)/spark.jsa: $(READY)
	@$(BIN)/python -m tests.spark_classes $@

fuzz: $(READY) ## Run damaged states, messages and stores with checked indices (FUZZ=100 for a hundred times as many)
	@NUMBA_BOUNDSCHECK=1 $(PYTEST) $(FUZZ_FILES)

mutation: $(VENV)/.mutation ## Change the code of merges, exact sums and reading at random places; tests must detect each change (half an hour; AGAIN=1 repeats undetected changes)
	@$(BIN)/python -m tests.mutation $(if $(AGAIN),--again)

$(VENV)/.mutation: $(READY)
	@$(BIN)/python $(INSTALL) constraints.txt --editable '.[mutation]'
	@touch $@

prometheus: $(READY) ## Write the results that Prometheus and promtool (Debian's package prometheus) compute from the events and histograms of the tests
	@$(BIN)/python -m tests.serve.prometheus_itself && $(BIN)/python -m tests.aggr.prometheus_native

lint: $(READY) ## Check style and format
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .

types: $(READY) ## Check types, strictly
	@$(BIN)/mypy

generate: $(READY) ## Write the generated pages and the golden states of new functions, and format the code (after adding a function)
	@$(BIN)/python -m tests.contrib.test_function_signatures && $(BIN)/python -m tests.docs.test_functions_page
	@$(BIN)/python -m tests.golden.make v2 && $(BIN)/python -m benchmarks.report
	@$(BIN)/ruff check --quiet --fix . && $(BIN)/ruff format --quiet . && git status --short

docs: $(VENV)/.docs ## Make the documentation site, build/site/index.html (warnings are errors, links are checked)
	@$(BIN)/python -m sphinx -b html -q -W --keep-going -d build/docs docs build/site && echo build/site/index.html

$(VENV)/.docs: $(READY)
	@$(BIN)/python $(INSTALL) constraints.txt --editable '.[docs]'
	@touch $@

extras: java $(READY) ## Install each extra of EXTRAS, or of docs/installing.md, alone, and follow its section of that page; EXTRAS=extending follows the pages about extension points alone
	@$(BIN)/python -m tests.docs.extras $(EXTRAS)

pages: java ## Follow the pages word for word, each in a new environment (slow; needs a network)
	@$(PYTHON) tests/docs/pages.py --fresh $(filter-out docs/installing.md,$(wildcard docs/*.md docs/how-to/*.md))

bench: java $(VENV)/.bench ## Compare with other libraries, on one core and on Spark (about ten minutes; QUICK=1 for a few minutes, without limits)
	@$(BIN)/python -m benchmarks $(if $(QUICK),--quick)

$(VENV)/.bench: $(READY)
	@$(BIN)/python $(INSTALL) constraints.txt --editable '.[bench]'
	@touch $@

report: java $(VENV)/.bench $(VENV)/.mutation ## Measure all figures in docs/report.md, and write the page (two hours)
	@$(BIN)/python -m benchmarks.report --run

dist: $(READY) ## Build the sdist, and the wheel from it, into dist/, with their checksums in dist/SHA256SUMS
	@rm -rf dist
	@$(BIN)/python -m build --no-isolation
	@cd dist && sha256sum *.tar.gz *.whl >SHA256SUMS && cat SHA256SUMS

clean: ## Remove the virtual environments and all files that targets have written
	rm -rf $(VENV) .venv-oldest .venv-sail $(CLUSTERS:%=.venv-%) $(SPARKS:%=.venv-spark-%) $(PYTHONS:%=.venv-%) demo-out bench-quick build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis

java:
	@java -version >/dev/null 2>&1 || { \
	  echo "Spark needs Java 17 or newer, which is not installed; install it, such as openjdk-17-jre-headless." >&2; exit 1; }

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "tiltframe needs Python 3.11 or newer; install it, and pass its name, such as make PYTHON=python3.11." >&2; exit 1; }
	@echo "setting up $(VENV), which takes one to five minutes …"
	@$(PYTHON) -m venv $(VENV)
	@$(OWN_METADATA) $(BIN)/python $(INSTALL) constraints.txt --editable '.[dev]'
	@touch $(READY)
