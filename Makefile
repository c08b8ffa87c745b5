# Everything runs from here; nothing else has to be typed. `make` alone lists the targets.
.DEFAULT_GOAL := help
SHELL := bash
.SHELLFLAGS := -euo pipefail -c

STEP = @printf '\n==> %s\n' 
# Values the tests and the demo read; each can be set from outside.
export PREFIXWAY_WASM ?= $(abspath $(or $(CARGO_TARGET_DIR),target))/wasm32-unknown-unknown/release/prefixway_filter.wasm
DEMO_ARGS ?=
BENCH_TEXT_ARGS ?=
BENCH_GATEWAY_ARGS ?=

.PHONY: help
help: ## List the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

.PHONY: setup
setup: ## Prepare the wasm target and Envoy (the other targets do it by themselves)
	@scripts/setup.sh

.PHONY: wasm
wasm: setup ## Build the wasm filter
	$(STEP) "wasm filter"
	@scripts/build-wasm.sh

.PHONY: examples
examples: setup ## Build the example of a filter with plugins of one's own
	$(STEP) "examples"
	@PREFIXWAY_WASM_PACKAGE=prefixway-own-scorer scripts/build-wasm.sh

.PHONY: build
build: wasm ## Build the filter and the prefixway binary (release)
	$(STEP) "prefixway (release)"
	@cargo build --release --locked -p prefixway

.PHONY: demo
demo: build ## Engines, indexer and Envoy on loopback, one workload, three policies, a table (DEMO_ARGS="--keep" and others)
	$(STEP) "demo"
	@ENVOY_BIN="$$(scripts/envoy.sh)" "$(or $(CARGO_TARGET_DIR),target)/release/prefixway" demo $(DEMO_ARGS)

.PHONY: test
test: wasm examples ## Run every test: units, properties, the filter on wasmtime, the whole path in real Envoy
	$(STEP) "tests (about ten minutes the first time)"
	@python="$$(scripts/python.sh)"; ENVOY_BIN="$$(scripts/envoy.sh)" PREFIXWAY_PYTHON="$$python" \
		cargo test --locked --workspace --no-fail-fast

.PHONY: cases
cases: wasm ## Run the request, event and scenario cases ($PREFIXWAY_CASES, else ../shared/cases), one line each
	$(STEP) "cases"
	@cargo run --locked --quiet -p prefixway-cases

.PHONY: lint
lint: setup ## Format, clippy and documentation, all warnings are errors
	@scripts/lint.sh

.PHONY: bench
bench: wasm ## Run the benchmarks
	$(STEP) "benchmarks"
	@cargo bench --locked --workspace

.PHONY: bench-text
bench-text: setup ## Measure the way from body to chunk hashes: native, wasmtime and node's V8, beside memcpy and serde_json
	$(STEP) "text path"
	@guest="$$(PREFIXWAY_WASM_PACKAGE=prefixway-bench-text scripts/build-wasm.sh --locked)" \
		&& cargo run --release --quiet --locked -p prefixway-bench-text -- "$$guest" $(BENCH_TEXT_ARGS)

.PHONY: bench-index
bench-index: ## The index beside those of dynamo-kv-router and kv-index, in one process run; rows in target/bench/index.json
	$(STEP) "index beside its peers"
	@cd bench-index && BENCH_OUT="$(or $(CARGO_TARGET_DIR),$(CURDIR)/target)/bench/index.json" cargo run --release --locked

.PHONY: bench-gateway
bench-gateway: wasm ## The filter in real Envoy beside plain Envoy and a minimal ext_proc server; rows in target/bench/gateway.json (BENCH_GATEWAY_ARGS=freshness: time from event to routing; =fleet: 1 to 8 gateways on one indexer; =overload: twice the load that engines can take)
	$(STEP) "gateway"
	@cargo build --release --locked -p prefixway-bench-gateway
	@ENVOY_BIN="$$(scripts/envoy.sh)" BENCH_OUT="$(or $(CARGO_TARGET_DIR),$(CURDIR)/target)/bench/gateway.json" \
		"$(or $(CARGO_TARGET_DIR),target)/release/prefixway-bench-gateway" $(BENCH_GATEWAY_ARGS)

.PHONY: bench-policy
bench-policy: ## Routing policies side by side in simulation on the public traces, with goals; rows in target/bench/policy.json
	$(STEP) "policies, simulated"
	@BENCH_OUT="$(or $(CARGO_TARGET_DIR),$(CURDIR)/target)/bench/policy.json" cargo run --release --locked --quiet -p prefixway-simulator --bin bench-policy

.PHONY: oracle
oracle: ## Ten million random operations through the index and its slow model (ORACLE_OPS for another number)
	$(STEP) "index against its oracle"
	@ORACLE_OPS="$${ORACLE_OPS:-10000000}" cargo test --release --locked -p prefixway-core --lib -- index::tests::random

.PHONY: soak-index
soak-index: ## Fifty million stores and removals; memory must end where it was after warm-up (SOAK_OPS for another number)
	$(STEP) "churn soak of the index"
	@SOAK_OPS="$${SOAK_OPS:-50000000}" cargo test --release --locked -p prefixway-core --test soak -- --nocapture

.PHONY: soak-gateway
soak-gateway: wasm ## Random load and faults in real Envoy for SOAK_SECONDS (1800): nothing wrong, stale, in flight or leaked afterwards
	$(STEP) "soak of the gateway"
	@SOAK_SECONDS="$${SOAK_SECONDS:-1800}" ENVOY_BIN="$$(scripts/envoy.sh)" \
		cargo test --locked --workspace --test soak_gateway -- --nocapture

.PHONY: fuzz
fuzz: ## Fuzz what reads foreign bytes: each target for FUZZ_SECONDS (300), or FUZZ_TARGET alone
	$(STEP) "fuzzing"
	@scripts/fuzz.sh

.PHONY: clean
clean: ## Remove what was built and what was fetched
	@cargo clean
	@rm -rf .tools
