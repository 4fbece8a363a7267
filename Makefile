# `make` lists the targets. Tools and SDKs for the tests are pinned and downloaded
# once; Go, Node and Python must be installed.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

FUZZTIME ?= 30s
TIERWAY_SOAK ?= 60s
BENCHTIME ?= 200ms
BENCH ?=
PKG ?=
SIMULATE ?= --mode base,hot,hetero,nosharing,mixed,agentic,burst --seeds 1

# All builds use the same flags. Tests reuse the packages of the binary, and a clone reuses packages of other clones.
# nomsgpack makes the binary 6 MiB smaller; the gateway uses no msgpack.
export CGO_ENABLED ?= 0
export GOFLAGS := $(GOFLAGS) -trimpath -tags=nomsgpack

# binary builds the program as $(1) with flags $(2). An unchanged file is kept, because a new file
# invalidates cached test results.
# Tests use a binary without the revision of the sources, so that a commit alone changes no file.
binary = [ -e $(1) ] || echo "building $(1): the first time takes a few minutes"; \
	go build $(2) -ldflags "-s -w" -o $(1).new ./cmd/tierway; \
	cmp -s $(1).new $(1) || cp -pf $(1).new $(1)

# Dependencies of tests and checks, in folders named after the hash of their lock files and tool versions.
# Clones share the folders.
export TIERWAY_CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/tierway
hash = $(shell (cat $(1); $(2)) 2>/dev/null | sha256sum | cut -c 1-16)
TOOLS := $(TIERWAY_CACHE)/tools-$(call hash,tools/go.mod tools/go.sum,go env GOVERSION)
tool = scripts/cached.sh $(TOOLS)/$(1) scripts/quiet.sh "building $(1)" go build -C tools -o $(TOOLS)/$(1)/ $(2)
PYTHON := $(TIERWAY_CACHE)/python-$(call hash,e2e/requirements.txt scripts/python.sh,python3 --version)
VLLM := $(TIERWAY_CACHE)/vllm-$(call hash,e2e/vllm/requirements.txt scripts/python.sh,python3 --version)
NPM_PROJECTS := web/ui e2e/browser e2e/node
npm = scripts/npm.sh $(1) $(TIERWAY_CACHE)/npm-$(call hash,$(1)/package.json $(1)/package-lock.json,node --version)

export TIERWAY_PYTHON := $(PYTHON)/bin/python
export GOLANGCI_LINT := $(TOOLS)/golangci-lint/golangci-lint
export GOVULNCHECK := $(TOOLS)/govulncheck/govulncheck

.PHONY: help run build tested test check soak stress fuzz bench bench-core bench-queue simulate bench-proxy bench-cpu bench-scale bench-watched bench-shared bench-tabs bench-hooks bench-cache bench-directory bench-scroll bench-classify bench-instructions bench-path docs ui screenshots deps npm linters govulncheck e2e-vllm clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "%-14s %s\n", $$1, $$2 }' Makefile

run: build ## Build and start the gateway in front of simulated engines, without any setup
	@bin/tierway demo

build: ## Build the static binary bin/tierway
	@$(call binary,bin/tierway)

tested:
	@$(call binary,bin/tested/tierway,-buildvcs=false)

test: deps tested ## Run the tests of the gate: virtual time, the race detector, the binary with real servers and SDKs
	@scripts/test.sh

check: linters npm ## Check format, linters, types and the built admin UI
	@scripts/check.sh

soak: deps govulncheck tested ## Run all tests: random seeds, the race detector, the binary with loads of TIERWAY_SOAK (60s)
	@TIERWAY_SOAK=$(TIERWAY_SOAK) scripts/test.sh soak

stress: deps tested ## Run the gate 3 times on one processor and 3 times beside busy processes (PKG="./server ./store": 20 times each)
	@scripts/stress.sh $(PKG)

e2e-vllm: build ## Route in front of two real vLLM engines on the CPU (downloads 6 GB; about 5 minutes)
	@scripts/cached.sh $(VLLM) scripts/quiet.sh "vLLM" scripts/python.sh $(VLLM) e2e/vllm/requirements.txt
	@TIERWAY_BIN=$(CURDIR)/bin/tierway TIERWAY_VLLM=$(VLLM)/bin/python \
		go test -tags nomsgpack,vllm -count=1 -timeout 30m -v ./e2e/vllm

fuzz: ## Fuzz every parser for FUZZTIME (30s) each
	@FUZZTIME=$(FUZZTIME) scripts/fuzz.sh

bench: ## Run the benchmarks of all packages
	@go test -run '^$$' -bench . -benchmem -benchtime $(BENCHTIME) ./...

bench-core: ## Measure parsing, classification, hashing and booking, with their allocations
	@go test -run '^$$' -bench . -benchmem -benchtime $(BENCHTIME) ./bench/core

bench-instructions: ## Count the instructions of a request, compared with another commit (BASE=COMMIT)
	@bench/instructions.sh $(BASE)

bench-path: ## Count the functions and the locks of a request (PATH_ARGS=-all lists the functions)
	@go run ./bench/path $(PATH_ARGS)

bench-queue: ## Measure queues: enter, leave, dispatch, one dispatch round over 256 requests, 20,000 requests that leave
	@go test -run '^$$' -bench 'Enter|Dispatch|AllLeave' -benchmem -benchtime $(BENCHTIME) ./queue ./routing

simulate: ## Print figures of queues and policies in virtual time (SIMULATE="--mode base --seeds 5" for other loads)
	@go test -count=1 -v -run 'Backlog|Share|Weights|Flood|Locality|RetryAndSucceed|Reference' ./sim
	@go run ./cmd/tierway simulate $(SIMULATE)

bench-proxy: build ## Compare the binary with nginx (BENCH="-memory", "-rounds 7 -seconds 3", "-json")
	@scripts/packages.sh nginx
	@go run ./bench/proxy $(BENCH)

bench-cpu: build ## Compare the processor time per request with nginx's (BENCH="-shape '400 B'", "-rate 500 -old PATH", "-vs NAME=HOST:PORT")
	@scripts/packages.sh nginx
	@go run ./bench/proxy -cpu $(BENCH)

bench-scale: build ## Measure the processor time per request by the number of workers, tenants, keyword rules, sessions, streams
	@go run ./bench/proxy -scale $(BENCH)

bench-watched: build ## Measure the cost of traces, decision records and logs: all on against all off (BENCH="-rounds 5 -seconds 2")
	@go run ./bench/proxy -watched $(BENCH)

bench-shared: build ## Measure the cost of shared state in Redis, compared with a gateway without it (BENCH="-rounds 7 -rate 200", "-json")
	@scripts/packages.sh redis-server
	@go run ./bench/proxy -shared $(BENCH)

bench-tabs: build ## Measure the cost of 20 open pages of the admin UI, compared with none (BENCH="-rounds 7 -rate 200", "-json")
	@go run ./bench/proxy -tabs $(BENCH)

bench-hooks: build ## Measure the cost of a hook that allows every request, compared with none (BENCH="-rounds 7 -rate 200", "-json")
	@go run ./bench/proxy -hooks $(BENCH)

bench-cache: build ## Measure the cost of a response cache, compared with none: misses, exact and semantic hits (BENCH="-rate 200", "-json")
	@go run ./bench/proxy -cache $(BENCH)

bench-directory: build ## Measure the cost of tenants and keys by their number: start, change, revocation, reload (BENCH="-short", "-markdown")
	@scripts/packages.sh redis-server
	@scripts/packages.sh postgres
	@go run ./bench/directory $(BENCH)

bench-scroll: build npm ## Scroll through 5,000 live decisions in a browser: long tasks and heap (4 minutes)
	@scripts/packages.sh chromium
	@node e2e/browser/scroll.mjs bin/tierway

bench-classify: ## Measure the quality and savings of the classifier's rules on labelled prompts (BENCH="-data DIR -markdown")
	@go run ./bench/classify $(BENCH)

docs: ## Regenerate the generated references in docs/
	@UPDATE_DOCS=1 scripts/docs.sh

ui: npm ## Build the admin UI (web/ui) into web/dist, which the binary embeds
	@scripts/quiet.sh "admin UI" npm --prefix web/ui run build

screenshots: build npm ## Take the screenshots in docs/images from the demo (2 minutes)
	@scripts/packages.sh chromium
	@mkdir -p docs/images
	@node e2e/browser/screenshots.mjs bin/tierway docs/images

deps: npm ## Download the test dependencies once
	@mkdir -p $(TIERWAY_CACHE) && flock $(TIERWAY_CACHE)/packages.lock scripts/packages.sh
	@scripts/cached.sh $(PYTHON) scripts/quiet.sh "python SDKs" scripts/python.sh $(PYTHON) e2e/requirements.txt
	@mkdir -p .cache && ln -sfn $(PYTHON) .cache/python
	@cd e2e/openaigo && go mod download

npm:
	@$(foreach project,$(NPM_PROJECTS),$(call npm,$(project));)

linters:
	@$(call tool,golangci-lint,github.com/golangci/golangci-lint/v2/cmd/golangci-lint)

govulncheck:
	@$(call tool,govulncheck,golang.org/x/vuln/cmd/govulncheck)

clean: ## Remove all builds of this clone; shared files stay in ~/.cache/tierway
	@rm -rf bin .cache $(NPM_PROJECTS:=/node_modules)
