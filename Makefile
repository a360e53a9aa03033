# Two targets do all their own set-up on a fresh machine: `make demo` and `make test`. `make help` lists the rest.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

# Everything that outlives a checkout lies here: the control plane, tools, Cargo's target folder.
export OPERATOR_HOST_CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/operator-host
export CARGO_TARGET_DIR ?= $(OPERATOR_HOST_CACHE)/target
TOOLS := $(OPERATOR_HOST_CACHE)/tools
export PATH := $(TOOLS)/bin:$(PATH)

CARGO_DENY_VERSION := 0.20.2
CARGO_COMPONENT_VERSION := 0.21.1
WASM_TARGETS := wasm32-unknown-unknown wasm32-wasip1 wasm32-wasip2

.PHONY: help
help: ## This list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

.PHONY: targets
targets: # Wasm targets are not added by naming them in a toolchain file where RUSTUP_AUTO_INSTALL=0.
	@for t in $(WASM_TARGETS); do rustup target list --installed | grep -qx $$t || rustup target add $$t; done

.PHONY: build
build: targets ## The host and the modules WebApp and StaticSite, optimised
	cargo build --release -p operator-host
	cargo build --profile guest -p webapp --target wasm32-unknown-unknown
	cargo build --profile guest -p staticsite --target wasm32-wasip2

.PHONY: control-plane
control-plane: ## A real Kubernetes built from Go modules, once, into the cache
	hack/control-plane/build.sh >/dev/null

.PHONY: lint
lint: cargo-deny ## rustfmt, gofmt, clippy, cargo-deny, docs: warnings are errors
	cargo fmt --all --check
	@unformatted=$$(gofmt -l bench); test -z "$$unformatted" || { echo "gofmt: $$unformatted"; exit 1; }
	cargo clippy --workspace --all-targets -- -D warnings
	cargo deny --log-level error check bans licenses sources
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --quiet

.PHONY: test
test: targets control-plane lint ## Lint, and every test, those on a real API server too
	cargo test --workspace

.PHONY: test-unit
test-unit: ## The tests that need no Kubernetes and no module
	cargo test --workspace --lib

.PHONY: test-e2e
test-e2e: targets control-plane ## The scenarios on a real API server
	cargo build -p operator-host
	cargo test -p operator-e2e

.PHONY: test-guests
test-guests: targets control-plane cargo-component ## WebApp in every form that guests are built in, and the guide for authors to the letter
	cargo test --workspace --test module --test guide -- --include-ignored webapp guide

.PHONY: test-otlp
test-otlp: targets control-plane ## The host with the feature otlp: clippy, and traces of a pass
	cargo clippy --workspace --all-targets --features operator-host/otlp -- -D warnings
	cargo build --workspace --bin operator --features operator-host/otlp
	OPERATOR_BIN=$(CARGO_TARGET_DIR)/debug/operator cargo test --workspace --features operator-host/otlp --test traces -- --include-ignored

.PHONY: test-long
test-long: targets control-plane ## What takes too long for every run: twenty kills of a leader with 500 sites, a whole minute of faults
	cargo test --workspace --no-run
	OPERATOR_E2E_KILLS=20 OPERATOR_E2E_OBJECTS=500 OPERATOR_E2E_FAULT_SECONDS=60 \
		cargo test --workspace --test kills --test bad_server -- --nocapture

.PHONY: crds
crds: ## Generate the CustomResourceDefinitions anew from the types of the guests
	UPDATE_CRDS=1 cargo test --quiet -p webapp -p staticsite -p webapp-apps crd

.PHONY: cluster
cluster: control-plane ## A real control plane for a person; prints its kubeconfig, stops with Ctrl-C
	cargo run --quiet -p operator-e2e --bin cluster

.PHONY: demo
demo: build control-plane ## The lives of a WebApp and a StaticSite on a real control plane, narrated
	cargo run --quiet -p operator-e2e --bin demo

.PHONY: bench-quick
bench-quick: build control-plane bench-operator ## What the host costs beside the same operator in Go; BENCH_ARGS=--help lists options
	OPERATOR_BIN=$(CARGO_TARGET_DIR)/release/operator cargo run --quiet -p operator-e2e --bin bench -- $(BENCH_ARGS)

# The flags of build.sh: what the control plane has compiled already is not compiled again.
.PHONY: bench-operator
bench-operator:
	cd bench && CGO_ENABLED=0 go vet -trimpath ./...
	bench/build.sh >/dev/null

.PHONY: cargo-deny cargo-component
cargo-deny: # A tool that is there already is used.
	@cargo deny --version >/dev/null 2>&1 || $(call install,cargo-deny,$(CARGO_DENY_VERSION))
cargo-component:
	@cargo component --version >/dev/null 2>&1 || $(call install,cargo-component,$(CARGO_COMPONENT_VERSION))

install = cargo install $(1) --version $(2) --locked --root $(TOOLS) --target-dir $(OPERATOR_HOST_CACHE)/tools-target
