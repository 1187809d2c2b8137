# The project's commands: `make` alone lists them. Each one installs or builds what it needs first; what is done already costs nothing.
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

# What `make build` builds, and whose directory under the target directory it lands in. The tests come along with the dev profile:
# built apart from the programs, they would have Cargo choose other features for what both share and build it twice.
PROFILE ?= dev
profile_dir = $(if $(filter dev,$(1)),debug,$(1))

bundle := runtime/dist/playwright.js
venv := $(CARGO_TARGET_DIR)/venv
v8_worker := $(CARGO_TARGET_DIR)/v8/berth-script
v8_archive := $(abspath $(or $(RUSTY_V8_ARCHIVE),$(firstword $(wildcard ../shared/v8/librusty_v8_*.a.gz))))
worker_sources := $(shell find runtime -name node_modules -prune -o -name dist -prune -o -type f -print)

step := scripts/step

.PHONY: help setup build demo test bench lint fmt clean

help: ## List the commands
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## (.*)/  make \1\t\2/' | expand -t 16

setup: ## Install what is missing: system packages and npm packages (every other command does so by itself)
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

build: ## Build both programs and the script worker's snapshot (PROFILE=release for the optimised ones)
build: $(bundle) | system
	@$(step) "Building ($(PROFILE) profile)" "The compiler's message is above" cargo build --profile $(PROFILE) --bins $(if $(filter dev,$(PROFILE)),--tests)
	@scripts/snapshot $(CARGO_TARGET_DIR)/$(call profile_dir,$(PROFILE)) $(bundle)

demo: ## Start everything, run TypeScript in a browser, leave a screenshot and the result in demo/out
demo: build
	@node demo/run.mjs $(CARGO_TARGET_DIR)/$(call profile_dir,$(PROFILE))/berth

test: ## Run all tests; T=routes::agent::health runs those whose name contains it
ifdef T
test: testbuild
	@BERTH_TEST_PYTHON=$(venv)/bin/python cargo test -q -- $(T)
else
test: $(if $(v8_archive),$(v8_worker).snapshot) testbuild
	@echo "==> Script tests run on $(if $(v8_archive),both engines: QuickJS and V8 ($(v8_archive)),QuickJS alone: no V8 library at hand (RUSTY_V8_ARCHIVE names one))"
	@BERTH_TEST_PYTHON=$(venv)/bin/python $(if $(v8_archive),BERTH_TEST_V8_WORKER=$(v8_worker)) \
		$(step) "Testing" "The failed tests are named above; one alone: make test T=its_name" cargo test
endif

.PHONY: testbuild
testbuild: build tests/clients/node_modules/.package-lock.json $(venv)/done

$(venv)/done: tests/clients/requirements.txt | system
	@$(step) "Installing the Python client for the tests" "Is the Python package index reachable? See tests/clients/requirements.txt" \
		scripts/venv $(venv) $<
	@touch $@

# The V8 worker follows its own sources only: the rest of the package does not change what the script tests ask of it.
$(v8_worker).snapshot: $(worker_sources) src/system/script/protocol.rs Cargo.lock $(bundle) | system
	@RUSTY_V8_ARCHIVE=$(v8_archive) $(step) "Building the script worker on V8" "The compiler's message is above" \
		cargo build --no-default-features --features v8 --bin berth-script
	@install -D $(CARGO_TARGET_DIR)/debug/berth-script $(v8_worker)
	@scripts/snapshot $(@D) $(bundle)

bench: ## Measure in one run beside what one would use instead; prints a table and writes bench.json. B="process watch" measures these alone
bench: $(bundle) benches/node_modules/.package-lock.json | system
	@scripts/setup $(tools) bench
	@$(step) "Building (release profile)" "The compiler's message is above" cargo bench --no-run --bench compare
	@scripts/snapshot $(CARGO_TARGET_DIR)/release $(bundle)
	@cargo bench --bench compare -- $(CARGO_TARGET_DIR)/bench.json $(B)

lint: ## Check format, clippy, and the dependencies' licences and sources
lint: | system
	@$(step) "Checking the format" "Run: make fmt" cargo fmt --check
	@$(step) "Running clippy" "Each warning above is to be mended" cargo clippy --all-targets -- -D warnings
	@scripts/deny $(tools)

fmt: ## Format the code
	@cargo fmt

clean: ## Remove everything built or installed inside the project
	@rm -rf $(CARGO_TARGET_DIR) runtime/dist runtime/node_modules tests/clients/node_modules benches/node_modules demo/out
