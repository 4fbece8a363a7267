# `make` lists the targets. Tools and SDKs for the tests are pinned and downloaded
# once; Go, Node and Python must be installed.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

FUZZTIME ?= 30s
TIERWAY_SOAK ?= 60s
BENCHTIME ?= 200ms
BENCH ?=
SIMULATE ?= --mode base,hot,hetero,nosharing,mixed,agentic,burst --seeds 1

# Without msgpack, which is not used, gin is 6 MiB smaller.
TAGS := -tags nomsgpack

.PHONY: help run build test check soak fuzz bench bench-core bench-queue simulate bench-proxy bench-watched bench-shared bench-tabs bench-scroll bench-classify docs ui screenshots deps clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-14s %s\n", $$1, $$2 }' Makefile

run: build ## Build and start the gateway in front of simulated engines, without any setup
	@bin/tierway demo

build: ## Build the static binary bin/tierway
	@[ -e bin/tierway ] || echo "building bin/tierway: the first time takes a few minutes"
	@CGO_ENABLED=0 go build $(TAGS) -trimpath -ldflags "-s -w" -o bin/tierway ./cmd/tierway

test: deps build ## Run all tests: units, with the race detector where goroutines run, then the binary with the official SDKs
	@scripts/test.sh

check: .cache/bin/golangci-lint .cache/bin/govulncheck web/ui/node_modules/.stamp e2e/browser/node_modules/.stamp ## Check format, linters, types, known vulnerabilities, the laws of the house, generated docs and the built admin UI
	@scripts/check.sh

soak: deps build ## Run the long end-to-end tests for TIERWAY_SOAK (60s)
	@TIERWAY_SOAK=$(TIERWAY_SOAK) scripts/test.sh soak

e2e-vllm: build .cache/vllm/.stamp ## Route before two real vLLM engines on the CPU (downloads 6 GB; about 5 minutes)
	@TIERWAY_BIN=$(CURDIR)/bin/tierway TIERWAY_VLLM=$(CURDIR)/.cache/vllm/bin/python \
		go test -tags nomsgpack,vllm -count=1 -timeout 30m -v ./e2e/vllm

fuzz: ## Fuzz every parser for FUZZTIME (30s) each
	@FUZZTIME=$(FUZZTIME) scripts/fuzz.sh

bench: ## Run the benchmarks of all packages
	@go test $(TAGS) -run '^$$' -bench . -benchmem -benchtime $(BENCHTIME) ./...

bench-core: ## Measure parsing, classification, hashing and booking, with their allocations
	@go test $(TAGS) -run '^$$' -bench . -benchmem -benchtime $(BENCHTIME) ./bench/core

bench-queue: ## Measure queues: entering, leaving, granting, one pass over 256, 20,000 that leave
	@go test $(TAGS) -run '^$$' -bench 'Enter|Grant|AllLeave|Round256' -benchmem -benchtime $(BENCHTIME) ./queue ./routing

simulate: ## Print figures of queues and policies in virtual time (SIMULATE="--mode base --seeds 5" for other loads)
	@go test $(TAGS) -count=1 -v -run 'Backlog|Share|Weights|Flood|Locality|RetryAndSucceed|Reference' ./sim
	@go run $(TAGS) ./cmd/tierway simulate $(SIMULATE)

bench-proxy: build ## Compare the binary with nginx (BENCH="-memory", "-cpu -rate 500 -old PATH", "-rounds 7 -seconds 3", "-json")
	@scripts/packages.sh nginx
	@go run $(TAGS) ./bench/proxy $(BENCH)

bench-watched: build ## Measure the cost of traces, decision records and logs: all on against all off (BENCH="-rounds 5 -seconds 2")
	@go run $(TAGS) ./bench/proxy -watched $(BENCH)

bench-shared: build ## Measure what gateways share through Redis, beside a gateway without it (BENCH="-rounds 7 -rate 200", "-json")
	@scripts/packages.sh redis-server
	@go run $(TAGS) ./bench/proxy -shared $(BENCH)

bench-tabs: build ## Measure what 20 open pages of the admin UI cost, beside none (BENCH="-rounds 7 -rate 200", "-json")
	@go run $(TAGS) ./bench/proxy -tabs $(BENCH)

bench-scroll: build e2e/browser/node_modules/.stamp ## Scroll through 5,000 live decisions in a browser: long tasks and heap (4 minutes)
	@scripts/packages.sh chromium
	@node e2e/browser/scroll.mjs bin/tierway

bench-classify: ## Measure the quality and savings of the classifier's rules on labelled prompts (BENCH="-data DIR -markdown")
	@go run $(TAGS) ./bench/classify $(BENCH)

docs: ## Regenerate the generated references in docs/
	@UPDATE_DOCS=1 scripts/docs.sh

ui: web/ui/node_modules/.stamp ## Build the admin UI (web/ui) into web/dist, which the binary embeds
	@scripts/quiet.sh "admin UI" npm --prefix web/ui run build

screenshots: build e2e/browser/node_modules/.stamp ## Take the screenshots in docs/images from the demo (2 minutes)
	@scripts/packages.sh chromium
	@mkdir -p docs/images
	@node e2e/browser/screenshots.mjs bin/tierway docs/images

deps: .cache/python/.stamp e2e/node/node_modules/.stamp e2e/browser/node_modules/.stamp web/ui/node_modules/.stamp ## Download the test dependencies once
	@scripts/packages.sh
	@cd e2e/openaigo && go mod download

.cache/python/.stamp: e2e/requirements.txt scripts/python.sh
	@scripts/quiet.sh "python SDKs" scripts/python.sh .cache/python e2e/requirements.txt
	@touch $@

%/node_modules/.stamp: %/package-lock.json
	@scripts/quiet.sh "packages of $*" npm ci --prefix $* --ignore-scripts --no-audit --no-fund
	@touch $@

.cache/vllm/.stamp: e2e/vllm/requirements.txt scripts/python.sh
	@scripts/quiet.sh "vLLM" scripts/python.sh .cache/vllm e2e/vllm/requirements.txt
	@touch $@

.cache/bin/golangci-lint: tools/go.mod tools/go.sum
	@scripts/quiet.sh "building golangci-lint" go build -C tools -o ../.cache/bin/golangci-lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint

.cache/bin/govulncheck: tools/go.mod tools/go.sum
	@scripts/quiet.sh "building govulncheck" go build -C tools -o ../.cache/bin/govulncheck golang.org/x/vuln/cmd/govulncheck

clean: ## Remove everything that was built or downloaded
	@rm -rf bin .cache e2e/node/node_modules e2e/browser/node_modules web/ui/node_modules
