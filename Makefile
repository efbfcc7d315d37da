# One command surface. Every target does its own set-up.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:

# SPARK=4.1 and SPARK=4.2 have an environment and a jar of their own; the default is the newest.
SPARK := 4.3
# The one on which `make check` runs some tests, too.
OLDER := 4.2
SUFFIX := $(if $(filter-out 4.3,$(SPARK)),$(SPARK))
VENV := .venv$(if $(SUFFIX),-$(SUFFIX))
PY := $(VENV)/bin/python
VERSION := $(shell sed -n 's/^version=//p' gradle.properties)
JAR := python/binshift/jars/binshift-spark$(SPARK)_2.13-$(VERSION).jar
SCALA := $(shell find {statestore,jvm_shim}/src -type f) build.gradle settings.gradle gradle.properties
FORMATTED := build/scala.formatted

.PHONY: help setup jar demo test test-few test-matrix field test-unit sources older-setup older-jar lint types format check bench-timers bench-migration bench-requests bench-costs bench-quick bench bench-report chaos lives exits mutants fuzz model soak spark-suites compatibility docs recordings wheel release-check release clean

help:  ## Show this list.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' Makefile

setup: $(VENV)/.ready $(JAR)  ## Prepare .venv with the package installed in it; SPARK=4.1 prepares .venv-4.1.

jar: $(VENV)/.ready $(JAR)  ## Build the jar into the package; SPARK=4.1 builds that of Spark 4.1.

demo: setup $(if $(filter kafka,$(SOURCE)),$(VENV)/.field)  ## Rescale a query over real flights, live and by Spark itself, into demo.png; SOURCE=kafka, REMOTE=1.
	$(PY) python/examples/flights --picture demo.png $(if $(SOURCE),--source $(SOURCE)) $(if $(REMOTE),--remote)

test: setup older-jar  ## Run all tests but the matrix; MATRIX=3/40 adds a part of it, LONG=1/4 runs a part of the long ones, SPARK=4.1 is on Spark 4.1.
	$(PY) -m pytest $(if $(MATRIX),--matrix-part=$(MATRIX)) $(if $(LONG),--long-part=$(LONG))

test-matrix: setup older-jar  ## Run the matrix of operators and settings; MATRIX=3/40 runs a part.
	$(PY) -m pytest -m matrix $(if $(MATRIX),--matrix-part=$(MATRIX))

field: setup $(VENV)/.field  ## Run the tests that need servers, which it fetches, part by part; PART=kafka runs one.
	$(PY) scripts/field.py $(if $(PART),--only $(PART))

test-few: setup  ## Run some tests of each thing that needs Spark, in two minutes; CI does with SPARK=4.1 or 4.2.
	$(PY) -m pytest -m "few and not matrix"

test-unit: setup  ## Run the tests that need no JVM.
	$(PY) -m pytest -n 0 tests/unit

lint: setup  ## Check style; changes no source.
	$(VENV)/bin/ruff check --no-fix . && $(VENV)/bin/ruff format --check .
	@$(MAKE) --no-print-directory $(FORMATTED)

types: setup  ## Check types.
	$(VENV)/bin/mypy

format: setup  ## Format the code of both languages.
	$(VENV)/bin/ruff format . && $(VENV)/bin/ruff check --fix .
	scripts/scalafmt --write

check: setup  ## Run all that CI runs; MATRIX=3/40 and LONG=1/4 choose parts of tests, OLDER=4.1 takes that Spark beside 4.3.
	@$(MAKE) --no-print-directory -j2 --output-sync=target sources older-setup
	@$(MAKE) --no-print-directory test-few SPARK=$(OLDER)
	@$(MAKE) --no-print-directory test

bench-timers: setup  ## Measure timers against Spark's own provider, and what moving half of them costs a step.
	$(PY) python/benchmarks/timers.py
	$(PY) python/benchmarks/timers.py --switch

bench-migration: setup  ## Measure a rescale of 10M keys, live and by Spark's own means.
	$(PY) python/benchmarks/suite.py --size full --only rescale resources restart more-keys

bench-requests: setup  ## Count requests to the checkpoint, at 60 ms each; a quarter of an hour.
	PYTHONPATH=python/benchmarks $(PY) python/benchmarks/requests

bench-costs: setup $(VENV)/.field  ## Count requests to S3, and say what an hour of them costs; a quarter of an hour.
	PYTHONPATH=tests $(PY) python/benchmarks/s3costs.py

bench-quick: setup  ## Run one benchmark of each kind; ten minutes.
	$(PY) python/benchmarks/suite.py --size quick

bench: setup  ## Run all benchmarks; a night. What was done is not done again. ONLY=rescale runs one.
	$(PY) python/benchmarks/suite.py --size full $(if $(ONLY),--only $(ONLY))

bench-report: setup  ## Write BENCHMARKS.md from the runs that were done.
	$(PY) python/benchmarks/suite.py --size $(or $(SIZE),full) --report --publish

chaos: setup  ## Kill and freeze drivers and executors at random instants; hours, or MINUTES=30. SEED=n; goes on where it stopped.
	$(PY) tests/chaos/run.py $(if $(SEED),--seed $(SEED)) $(if $(MINUTES),--minutes $(MINUTES))

lives: setup  ## Live through random lives in one JVM, seconds each, and shorten what comes out wrong; MINUTES=10, SEED=n.
	PYTHONPATH=tests $(PY) tests/lives/run.py --minutes $(or $(MINUTES),10) --results tests/lives/results.jsonl $(if $(SEED),--seed $(SEED))

exits: setup  ## End small programs at random instants, and watch their JVMs until they are gone; MINUTES=30. Goes on where it stopped.
	PYTHONPATH=tests $(PY) tests/cluster/exits.py --minutes $(or $(MINUTES),30)
	PYTHONPATH=tests $(PY) tests/cluster/exits.py --page

mutants: setup  ## Plant small faults in copies of the sources, and see which ones random lives find; hours. MINUTES=10 for each.
	PYTHONPATH=tests $(PY) tests/mutants/run.py --minutes $(or $(MINUTES),10)
	PYTHONPATH=tests $(PY) tests/mutants/run.py --page

fuzz: setup  ## Feed the decoders of both languages random and damaged inputs; INPUTS=1000000 of each language.
	PYTHONPATH=tests $(PY) tests/fuzz/run.py --inputs $(or $(INPUTS),1000000)
	PYTHONPATH=tests $(PY) tests/fuzz/run.py --inputs $(or $(INPUTS),1000000) --jvm

model: setup  ## Explore the protocol's model: controls with their shortest traces, then all sizes; an hour. LIMIT=n states of a size.
	PYTHONPATH=tests $(PY) tests/model/run.py $(if $(LIMIT),--limit $(LIMIT))

soak: setup  ## Run queries for HOURS=8 on a cluster whose machines come and go; writes build/soak/report.md with plots.
	$(PY) tests/soak/run.py --hours $(or $(HOURS),8) $(if $(SEED),--seed $(SEED))

spark-suites: setup  ## Run Spark's own streaming suites on this provider; hours. Goes on where it stopped; RELEASE=4.1.1.
	$(PY) scripts/spark_suites.py --all $(if $(RELEASE),--spark $(RELEASE))

compatibility: setup older-jar  ## Run a few tests of each row of the table of what works, and write it; ten minutes; SPARK=4.1.
	$(PY) scripts/compatibility.py

recordings: setup $(VENV)/.docs  ## Run the notebook anew, with its outputs.
	$(PY) scripts/recordings.py

docs: setup $(VENV)/.docs  ## Build the site of the documentation into build/site; a warning is an error.
	$(PY) scripts/build_docs.py

wheel:  ## Build the wheel into dist/, with the jars for all versions of Spark; needs no environment.
	@scripts/wheel

release-check: setup wheel  ## Build what a release consists of, into dist/, and use each part in an empty environment.
	scripts/release
	$(PY) -m pytest -n 0 -m field tests/release

release: setup  ## Release the version of gradle.properties: build and try all of it, close the changelog, tag. Nothing is pushed.
	$(PY) scripts/tag_release.py --check
	@$(MAKE) --no-print-directory release-check
	$(PY) scripts/tag_release.py

clean:  ## Remove what the build made, and the environments.
	rm -rf build dist .venv .venv-4.1 .venv-4.2 .gradle python/binshift/jars .pytest_cache .mypy_cache .ruff_cache .hypothesis

# The editable install builds the jar itself (hatch_build.py); later changes of Scala sources are built
# by the rule for the jar.
$(VENV)/.ready: pyproject.toml hatch_build.py gradle.properties scripts/setup
	@scripts/setup $(SUFFIX)
	@touch $@

# Neither of these two takes more than one core.
sources: lint types docs

older-setup:
	@$(MAKE) --no-print-directory setup SPARK=$(OLDER)

# A test continues checkpoints of older versions of Spark, if there are environments with them.
older-jar:
	@for spark in 4.1 4.2; do \
		if [ -e .venv-$$spark/.ready ]; then $(MAKE) --no-print-directory jar SPARK=$$spark; fi; \
	done

$(VENV)/.docs: $(VENV)/.ready pyproject.toml
	@$(VENV)/bin/pip install --quiet --disable-pip-version-check -e '.[docs]'
	@touch $@

$(VENV)/.field: $(VENV)/.ready pyproject.toml
	@command -v mvn >/dev/null || scripts/install maven
	@$(VENV)/bin/pip install --quiet --disable-pip-version-check -e '.[field]'
	@touch $@

$(FORMATTED): .scalafmt.conf scripts/scalafmt scripts/scalafmt.xml $(shell find statestore jvm_shim python tests -name '*.scala')
	scripts/scalafmt
	@touch $@

$(JAR): $(VENV)/.ready $(SCALA)
	@scripts/build-jar $(SUFFIX)
	@touch $@
