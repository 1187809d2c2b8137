# The project's commands: `make` alone lists them. Each installs or builds what it needs first;
# steps that are up to date cost nothing.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# Cargo runs one build at a time and uses all cores by itself.
.NOTPARALLEL:
MAKEFLAGS += --no-builtin-rules --no-print-directory

CARGO_TARGET_DIR ?= target
override CARGO_TARGET_DIR := $(abspath $(CARGO_TARGET_DIR))
export CARGO_TARGET_DIR
tools := $(CARGO_TARGET_DIR)/tools
export PATH := $(tools)/bin:$(PATH)
# Set on machines that have the release of rust-toolchain.toml under the name `stable` only.
export RUSTUP_TOOLCHAIN := $(or $(RUSTUP_TOOLCHAIN),$(shell scripts/toolchain))
ifeq ($(RUSTUP_TOOLCHAIN),)
unexport RUSTUP_TOOLCHAIN
endif

# The profile that `make build` builds with, and its directory below the target directory.
PROFILE ?= dev
profile_dir = $(if $(filter dev,$(1)),debug,$(1))

bundle := runtime/dist/playwright.js
venv := $(CARGO_TARGET_DIR)/venv
v8_worker := $(CARGO_TARGET_DIR)/v8/berth-script
v8_archive := $(abspath $(or $(RUSTY_V8_ARCHIVE),$(firstword $(wildcard ../shared/v8/librusty_v8_*.a.gz))))
v8_features := --no-default-features --features v8 --bin berth-script
worker_sources := $(shell find runtime -name node_modules -prune -o -name dist -prune -o -type f -print)

step := scripts/step

# Three times the cores: most tests wait for a process, a timer or a connection. .config/nextest.toml
# limits the ones with a browser.
export NEXTEST_TEST_THREADS ?= $(shell echo $$(($$(nproc) * 3)))

# The number of cases that `make fuzz` runs of each target.
FUZZ_CASES ?= 200000

.PHONY: help setup build demo test test-postgres test-fast soak fuzz deb deb-test image vm-test bench lint fmt clean

help: ## List the commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 20

setup: ## Install missing system and npm packages (every other command does this by itself)
setup: system runtime/node_modules/.package-lock.json

.PHONY: system
system:
	@scripts/setup $(tools)

# npm writes this file last, so it stands for a complete install.
%/node_modules/.package-lock.json: %/package-lock.json | system
	@$(step) "Installing the npm packages of $*" "Is the npm registry reachable? Try: npm ci --prefix $*" \
		npm ci --prefix $* --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@

$(bundle): runtime/node_modules/.package-lock.json $(filter-out %.rs,$(worker_sources))
	@$(step) "Bundling Playwright for the script worker" "The recipe is runtime/build.mjs" npm run --silent --prefix runtime build
	@touch $@

build: ## Build both programs and the script worker's snapshot (PROFILE=release for optimised ones)
build: $(bundle) | system
	@$(step) "Building ($(PROFILE) profile)" "The compiler's message is above" cargo build --profile $(PROFILE) --bins
	@scripts/snapshot $(CARGO_TARGET_DIR)/$(call profile_dir,$(PROFILE)) $(bundle)

demo: ## Start everything, run TypeScript in a browser, write a screenshot and the result to demo/out
demo: build
	@node demo/run.mjs $(CARGO_TARGET_DIR)/$(call profile_dir,$(PROFILE))/berth

test: ## Run all tests; T=routes::agent::health runs those with this in their name
ifdef T
test: testbuild
	@BERTH_TEST_PYTHON=$(venv)/bin/python scripts/nextest $(T)
else
test: $(if $(v8_archive),$(v8_worker).snapshot) testbuild
	@echo "==> Script tests run on $(if $(v8_archive),both engines: QuickJS and V8 ($(v8_archive)),QuickJS only: no V8 library found (set RUSTY_V8_ARCHIVE to one))"
	@BERTH_TEST_PYTHON=$(venv)/bin/python $(if $(v8_archive),BERTH_TEST_V8_WORKER=$(v8_worker)) \
		$(step) "Testing" "The failed tests are named above; to run one: make test T=its_name" \
		scripts/nextest $(if $(CI),--profile ci)
	@$(test_postgres)
endif

test_postgres = BERTH_TEST_PYTHON=$(venv)/bin/python $(step) "Testing control on PostgreSQL" \
	"The failed tests are named above; to run one: make test-postgres T=its_name" scripts/nextest --profile postgres

test-postgres: ## Run the tests of control on PostgreSQL, which is part of `make test`; T=its_name runs one
test-postgres: testbuild
	@$(test_postgres) $(T)

test-fast: ## Run the tests that need no browser
test-fast: nextest build
	@$(step) "Testing without a browser" "The failed tests are named above; to run one: make test T=its_name" \
		scripts/nextest --profile fast

fuzz: ## Run the fuzz targets for longer than `make test` does; FUZZ_CASES=1000000 sets the cases of each
fuzz: nextest
	@PROPTEST_CASES=$(FUZZ_CASES) $(step) "Fuzzing ($(FUZZ_CASES) cases of each target)" \
		"The failed input is above; a file in proptest-regressions replays it" scripts/nextest --profile fuzz --lib

soak: ## Run the long forms of the tests with generated input
soak: export BERTH_TEST_BATCHES ?= 10000
soak: export BERTH_TEST_CDP_CONNECTIONS ?= 20
soak: export BERTH_TEST_LIVE_ARCHIVES ?= 20
soak: export BERTH_TEST_FILL_MUTANTS ?= 10000
soak: export BERTH_TEST_FILL_SEED ?= $(shell echo $$RANDOM)
soak: export BERTH_TEST_POOL_WAITERS ?= 1000
soak: export BERTH_TEST_FLOW_READERS ?= 500
soak: export BERTH_TEST_PROFILE_SAVES ?= 200
soak: export BERTH_TEST_API_EXAMPLES ?= 200
soak: export BERTH_TEST_API_SEED ?= $(shell echo $$RANDOM)
soak: export BERTH_TEST_SYSTEM_CLIENTS ?= 50
soak: export BERTH_TEST_SYSTEM_SECONDS ?= 60
soak: export BERTH_TEST_SYSTEM_SEED ?= $(shell echo $$RANDOM)
soak: testbuild
	@BERTH_TEST_PYTHON=$(venv)/bin/python \
		$(step) "Testing with generated input" "The failed tests are named above, with the seed that repeats them" \
		scripts/nextest --profile soak
	@BERTH_TEST_PYTHON=$(venv)/bin/python \
		$(step) "Testing the system on PostgreSQL" "The failed test is named above, with the seed that repeats it" \
		scripts/nextest --profile soak-postgres

.PHONY: testbuild nextest
testbuild: nextest build tests/clients/node_modules/.package-lock.json $(venv)/done

nextest: | system
	@scripts/cargo-tool $(tools) cargo-nextest 0.9.143

$(venv)/done: tests/clients/requirements.txt | system
	@$(step) "Installing the Python packages for the tests" "Is the Python package index reachable? See tests/clients/requirements.txt" \
		scripts/venv $(venv) $<
	@touch $@

# Only the worker's own sources are listed: other changes to the package do not affect the script tests.
$(v8_worker).snapshot: $(worker_sources) src/system/script/protocol.rs Cargo.lock $(bundle) | system
	@RUSTY_V8_ARCHIVE=$(v8_archive) $(step) "Building the script worker on V8" "The compiler's message is above" \
		cargo build $(v8_features)
	@install -D $(CARGO_TARGET_DIR)/debug/berth-script $(v8_worker)
	@scripts/snapshot $(@D) $(bundle)

deb: ## Build the Debian packages in target/debian
deb:
	@$(MAKE) build PROFILE=release
	@scripts/cargo-tool $(tools) cargo-deb 3.8.0
	@$(step) "Building the packages" "The message is above" scripts/packages $(CARGO_TARGET_DIR)

deb-test: ## Install, upgrade and remove the packages in containers; needs root
deb-test: deb nextest tests/clients/node_modules/.package-lock.json
	@scripts/setup $(tools) container
	@$(step) "Creating the root file system of the containers" "Are Debian's package mirrors reachable?" \
		scripts/container $(CARGO_TARGET_DIR)/container $(CARGO_TARGET_DIR)/debian
	@BERTH_TEST_PACKAGES=$(CARGO_TARGET_DIR)/debian BERTH_TEST_CONTAINER=$(CARGO_TARGET_DIR)/container \
		$(step) "Testing the packages" "The failed tests are named above" scripts/nextest --profile packages

# The directory with the VM image.
image := $(CARGO_TARGET_DIR)/image

image: ## Build the VM image in target/image; needs root
image: deb
	@scripts/setup $(tools) image
	@$(step) "Building the image" "Are Debian's package mirrors reachable?" \
		image/build $(image) $(CARGO_TARGET_DIR)/debian

vm-test: ## Boot the VM image in QEMU and use it from outside; T=its_name runs one test
vm-test: image testbuild
	@scripts/setup $(tools) machine
	@BERTH_TEST_IMAGE=$(image) $(step) "Testing the image" "The failed tests are named above" \
		scripts/nextest --profile machine $(T)

# The section about the image, if there is one.
bench: export BERTH_TEST_IMAGE ?= $(patsubst %/berth.qcow2,%,$(wildcard $(image)/berth.qcow2))
bench: ## Compare with the alternatives in one run; prints a table, writes bench.json. B="process watch" selects sections
bench: $(bundle) benches/node_modules/.package-lock.json | system
	@scripts/setup $(tools) bench
	@$(if $(BERTH_TEST_IMAGE),scripts/setup $(tools) machine)
	@$(step) "Building (release profile)" "The compiler's message is above" cargo bench --no-run --bench compare
	@scripts/snapshot $(CARGO_TARGET_DIR)/release $(bundle)
	@cargo bench --bench compare -- $(CARGO_TARGET_DIR)/bench.json $(B)

lint: ## Check the format, clippy, the documentation, and the dependencies
lint: | system
	@$(step) "Checking the format" "Run: make fmt" cargo fmt --check
	@$(step) "Running clippy" "Fix the warnings above" cargo clippy --all-targets -- -D warnings
ifneq ($(v8_archive),)
	@RUSTY_V8_ARCHIVE=$(v8_archive) $(step) "Running clippy on the script worker on V8" "Fix the warnings above" \
		cargo clippy $(v8_features) -- -D warnings
endif
	@RUSTDOCFLAGS="-D warnings" $(step) "Checking the documentation" "Fix the warnings above" \
		cargo doc --quiet --no-deps --document-private-items --lib --bins
	@scripts/dependencies $(tools)

fmt: ## Format the code
	@cargo fmt

clean: ## Remove everything built or installed inside the project
	@rm -rf $(CARGO_TARGET_DIR) runtime/dist runtime/node_modules tests/clients/node_modules benches/node_modules demo/out
