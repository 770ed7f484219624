# Needs Go, gcc (for the race detector), make and bash; for brokers, what
# scripts/brokers needs. `make download` fetches everything that comes from the
# network; after it, all targets work offline.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

GO ?= go
MODULES := . benchmarks
PARTS := build vet lint tidy files unit suites bench-once
FUZZTIME ?= 10s
SUITES := runtime examples
BROKERS := kafka rabbitmq postgres mariadb
SOAK_ROUNDS ?= 10

# The linter is the one in PATH if it has this version, else one built here.
LINT_VERSION := v2.15.0
LINT_OWN := $(CURDIR)/.cache/bin/golangci-lint-$(LINT_VERSION)
LINT = $(shell if [ "$$(golangci-lint version --short 2>&1)" = "$(LINT_VERSION:v%=%)" ]; then command -v golangci-lint; else echo "$(LINT_OWN)"; fi)

# A part that needs what is not here and cannot be fetched is left out, and
# says so; where CI is set, that is a failure.
skipped = echo "$(1)" >>"$${SKIPS:-/dev/null}"; echo "$(1) SKIPPED: it needs the network once; run 'make download' while there is one" >&2; test -z "$${CI:-}"

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F ':.*## ' '{printf "  %-12s %s\n", $$1, $$2}'

# Brokers whose LEAT_TEST_ variable is set are used as they are, the others are
# started for this run. Where they cannot be, their tests are skipped; where CI is
# set, that is a failure.
.PHONY: test
test: ## everything that CI checks, with brokers of its own; part by part, with the time of each
	@export SKIPS=$$(mktemp); trap 'rm -f "$$SKIPS"' EXIT; echo "=== brokers"; \
	BEGAN=$$EPOCHSECONDS scripts/brokers run $(BROKERS) -- $(MAKE) parts

.PHONY: parts
parts:
	@began=$${BEGAN:-$$EPOCHSECONDS}; times=" brokers=$$((EPOCHSECONDS - began))s"; \
	for part in $(PARTS); do \
		echo "=== $$part"; at=$$SECONDS; \
		$(MAKE) $$part || { echo "=== $$part FAILED after $$((SECONDS - at))s" >&2; exit 1; }; \
		times+=" $$part=$$((SECONDS - at))s"; \
	done; \
	echo "=== passed in $$((EPOCHSECONDS - began))s:$$times$$(sed 's/^/, SKIPPED: /' "$${SKIPS:-/dev/null}" | tr -d '\n')"

.PHONY: build
build: ## build every package of every module
	@for m in $(MODULES); do (cd $$m && $(GO) build ./...); done

.PHONY: vet
vet: ## go vet, tests included
	@for m in $(MODULES); do (cd $$m && $(GO) vet ./...); done

.PHONY: lint
lint: ## golangci-lint, installed into .cache/bin if PATH has another version
	@if [ ! -x "$(LINT)" ] && ! $(MAKE) linter; then $(call skipped,lint); exit; fi; \
	flags="--allow-parallel-runners --config $(CURDIR)/.golangci.yml"; \
	$(LINT) run $$flags ./...; \
	cd benchmarks && $(LINT) run $$flags --disable gomoddirectives ./...

.PHONY: linter
linter:
	GOBIN=$(dir $(LINT_OWN)) $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(LINT_VERSION)
	mv $(dir $(LINT_OWN))golangci-lint $(LINT_OWN)

.PHONY: tidy
tidy: ## check that go.mod and go.sum are what `go mod tidy` makes of them
	@for m in $(MODULES); do cd $(CURDIR)/$$m; \
		if ! out=$$($(GO) mod tidy -diff 2>&1); then \
			case "$$out" in *"diff current/"*) echo "$$out"; exit 1;; esac; \
			tail -n 3 <<<"$$out" >&2; $(call skipped,tidy of $$m); \
		fi; \
	done

.PHONY: files
files: ## lint every worker's YAML: of README and docs, and of each example by its own program
	@export BROKER_URL=sqlite://worker.db; $(GO) run ./cmd/worker lint README.md docs --known charge; \
	for dir in examples/*; do \
		program=cmd/worker; if [ -f "$$dir/main.go" ]; then program=$$dir; fi; \
		$(GO) run "./$$program" lint "$$dir"; \
	done

.PHONY: unit
unit: ## all tests but the suites, with the race detector; docs and examples among them
	@$(GO) test -race -count=1 -timeout 25m -skip '^TestConformance' ./...

# Of what a suite prints: its tables, under the names of their tests; all of it if one fails.
.PHONY: suites
suites: ## the conformance suites on every transport, with the race detector; prints their tables
	@out=$$(mktemp); trap 'rm -f "$$out"' EXIT; \
	$(GO) test -race -count=1 -p 1 -timeout 25m -v -run '^TestConformance' \
		$$(grep -rl --include='*_test.go' '^func TestConformance' $(SUITES) | xargs -n 1 dirname | sort -u | sed 's|^|./|') >"$$out" 2>&1 || \
		{ grep -vE '^ *(=== |--- (PASS|SKIP))' "$$out"; exit 1; }; \
	awk '/^=== (NAME|RUN|CONT) / { test = $$3 } \
		match($$0, /[0-9]+ cases: .*/) { print test ": " substr($$0, RSTART) } \
		/^ +[A-Z][A-Za-z0-9]*_[a-z_]+ +skipped / { sub(/^ +/, "  "); print } \
		/^ok / { print }' "$$out"

.PHONY: bench-once
bench-once: ## one pass of every benchmark, to see that it works
	@for m in $(MODULES); do (cd $$m && $(GO) test -run '^$$' -bench . -benchtime 1x -timeout 10m ./...); done

.PHONY: bench
bench: ## measure against peers: medians and ratios (LEAT_BENCH_ROUNDS, LEAT_BENCH_ONLY)
	@cd benchmarks && $(GO) run .

.PHONY: soak
soak: ## the tests that stop and kill processes and the suites, at length, SOAK_ROUNDS (10) times
	@LEAT_SOAK=1 scripts/brokers run $(BROKERS) -- $(GO) test -count=$(SOAK_ROUNDS) -timeout 0 -v -run 'Term|Kill|Crash|Start|Conformance|Engine|Reconnect|Cluster|Memory|Never|K[0-9]' \
		./runtime/worker ./runtime/conformance ./runtime/pubsub ./runtime/transport/... ./internal/sqldb

.PHONY: fuzz
fuzz: ## each fuzz target for FUZZTIME (10s)
	@grep -rHo --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' . | while IFS=: read -r file fn; do \
		$(GO) test -run '^$$' -fuzz "^$${fn#func }\$$" -fuzztime $(FUZZTIME) "./$$(dirname "$$file")"; \
	done

.PHONY: download
download: ## fetch everything that comes from the network
	@for m in $(MODULES); do (cd $$m && $(GO) mod download && $(GO) mod tidy -diff); done
	@test -x "$(LINT)" || $(MAKE) linter
	@scripts/brokers install $(BROKERS) || { echo "brokers cannot be installed here: their tests will be skipped" >&2; test -z "$${CI:-}"; }
