# make install system packages and .venv; the command is then .venv/bin/fuga
# make up      install, then fuga: API, control centre, monitor, worker, 8 hosts
# make test    install, then the short form of the tests, real guests included (15 minutes)
# make test-all  the other tests: all cases, PostgreSQL, all real guests, chaos (45 minutes)
# make test-fast  in two minutes: the tests that need neither server nor host, and are not slow
# make distribution  build Debian's image and log in to a VM of it (root, many minutes)
# make wheel   dist/: the wheel, with web console, licences and commit
# make release  dist/: sdist, wheel, bill of materials, CHANGELOG.md, SHA256SUMS, all checked
# make deb     dist/: a Debian package for this machine's release of Debian
# make deb-check  install it on a clean Debian, run a VM, upgrade, purge (root, many minutes)
# make container-check  the Containerfile's steps without podman, then a VM of them (root, as long)
# make audit   known vulnerabilities, licences, bill of materials of what is locked
# make lint    ruff, mypy, import contracts
# make house   draw the packages and rooms of docs/architecture.md from the imports of the code
# make api-docs  write docs/openapi.json, docs/api-problems.md and the types of the client
# make screenshots  pictures of the web console in docs/images, from a running `make up`
# make bench   speed and fairness, each against a baseline (ARGS="--only scan,slot --full")
# make chaos   FAULTS=60 SEED=1,2,3: kill, pause and cut a production site, look what is left
# make mutants  change the meaning of placement/ in one place at a time: does a test notice?
# make fuzz    MINUTES=10: generated calls with real ids, as each role, on PostgreSQL
# make lab     N=3: real libvirt hosts on this machine, their URIs printed
# make lock    write requirements/*.lock again (needs uv)
# make clean   end what runs here, remove what was made here
.PHONY: install install-tests up test test-all test-fast distribution wheel release deb deb-check container-check audit lint house api-docs screenshots bench chaos mutants fuzz lab lock clean help
.DEFAULT_GOAL := help

PY := .venv/bin/python
N ?= 3
FAULTS ?= 25
SEED ?= 1
MINUTES ?= 10
LAB_DIR ?= .fuga/lab-by-hand

help:
	@sed -n 's/^# make/make/p' Makefile

install:
	@scripts/install

install-tests:
	@scripts/install tests

up: install
	@.venv/bin/fuga up $(ARGS)

test: install-tests
	@$(PY) scripts/run_tests.py $(ARGS)

test-all: install-tests
	@FUGA_TESTS=rest $(PY) scripts/run_tests.py $(ARGS)

test-fast: install-tests
	@$(PY) -m pytest -q -n 2 -m "not slow" tests/unit tests/golden tests/mutants $(ARGS)

distribution: install-tests
	@lab/scripts/build-distribution build/distribution
	@FUGA_TEST_DISTRIBUTION=build/distribution $(PY) -m pytest -q tests/distribution $(ARGS)

wheel: install
	@scripts/build-wheel dist

release: install
	@scripts/build-release dist $(ARGS)

deb: install
	@scripts/build-deb dist

deb-check: install
	@scripts/check-deb

container-check: install
	@scripts/check-container

audit: install
	@scripts/audit $(ARGS)

lint: install
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@.venv/bin/mypy
	@.venv/bin/lint-imports

house: install
	@$(PY) -m scripts.house

api-docs: install
	@$(PY) -m controller.rest.pages.published docs
	@$(PY) -m controller.client.generate

screenshots: install-tests
	@$(PY) -m scripts.screenshots $(ARGS)

bench: install
	@$(PY) -m benchmarks $(ARGS)

chaos: install-tests
	@$(PY) -m tests.chaos --faults $(FAULTS) --seeds $(SEED) $(ARGS)

mutants: install-tests
	@$(PY) -m tests.mutants $(ARGS)

fuzz: install-tests
	@$(PY) -m tests.fuzzing --minutes $(MINUTES) $(ARGS)

lab: install
	@lab/scripts/build-guest $(LAB_DIR)/guest
	@LAB_BASE=$(LAB_DIR)/guest/base.qcow2 lab/scripts/start-hosts $(N) $(LAB_DIR)/hosts
	@echo "end them: lab/scripts/stop-hosts $(LAB_DIR)/hosts --purge" >&2

lock:
	@scripts/lock

# Where fuga cannot run (any more), its real hosts are found by the tags they left.
clean:
	@if [ -d $(LAB_DIR)/hosts ]; then bash lab/scripts/stop-hosts $(LAB_DIR)/hosts --purge; fi
	@if .venv/bin/fuga --help >/dev/null 2>&1; then .venv/bin/fuga down --purge; \
	elif [ -d .fuga ]; then \
	  find .fuga -name tag -execdir bash "$(CURDIR)/lab/scripts/stop-hosts" . --purge ';'; fi
	@rm -rf .venv .fuga build dist *.egg-info .*_cache .hypothesis
	@rm -rf web/node_modules web/.built web/src/api/generated.ts controller/client/models.py controller/rest/pages/web_files
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
