# Every target works on a fresh machine with Go; those that need more say so, or
# install it where they may (see .ci/tools).

GO ?= go

# Pinned: a new version of a linter is a change of the rules. staticcheck and the
# tests of internal/lint are the linters, and not golangci-lint: building that
# takes 180 modules and six times as long, for checks that these two cover.
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2

TIMEOUT  ?= 60m
COUNT    ?= 20
FUZZTIME ?= 30s
SIMTIME  ?= 1m
SIMSEED  ?= 0
MUTANTTIME ?= 1m
PKG      ?= ./engine/...
RUN      ?= .
ARGS     ?= uncontended --goroutines 64 --duration 5s

.DEFAULT_GOAL := help
.PHONY: help run test full interop interop-short race fuzz stress sim mutants lint house house-ratchet staticcheck vulns vet fmt fmt-check tidy-check cross peers bench

help: ## show this
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: ## the main job: processes that contend for a lock, on the embedded server
	$(GO) run ./cmd/pawl demo

test: ## every test with the race detector and the invariants checked, on a real redis-server
	@GO="$(GO)" TIMEOUT="$(TIMEOUT)" .ci/test

full: ## every test on every generation of servers, in every variant: two hours or so
	@GO="$(GO)" TIMEOUT="$(TIMEOUT)" .ci/full

interop: ## Pawl beside the real Redisson, on the same servers; needs Java and Maven
	@GO="$(GO)" .ci/interop full

interop-short: ## the same with 200 acquisitions of each type instead of 2,000
	@GO="$(GO)" .ci/interop short

race: ## the tests of PKG (./engine/...) COUNT (20) times with the race detector
	$(GO) test -race -count=$(COUNT) -timeout 60m -run '$(RUN)' $(PKG)

fuzz: ## every fuzz target for FUZZTIME (30s)
	GO="$(GO)" FUZZTIME="$(FUZZTIME)" .ci/fuzz

stress: ## the tests RUN (all) of PKG (./engine/...) COUNT (20) times on 1 and on 4 threads
	GOMAXPROCS=1 $(GO) test -race -count=$(COUNT) -timeout 60m -run '$(RUN)' $(PKG)
	GOMAXPROCS=4 $(GO) test -race -count=$(COUNT) -timeout 60m -run '$(RUN)' $(PKG)

sim: ## engines in a simulated world, fresh seeds for SIMTIME (1m); SIMSEED=n tells the story of one
	$(GO) test ./engine/internal/sim -run 'TestNoSeedBreaksAPromise' -count=1 -v -timeout 0 -sim.time=$(SIMTIME) -sim.seed=$(SIMSEED)

mutants: ## small changes of the engine, each of which the simulation must find within MUTANTTIME (1m)
	$(GO) test ./engine/internal/sim -run 'TestMutantsAreFound' -count=1 -v -timeout 0 -sim.mutants=$(MUTANTTIME)

lint: fmt-check vet staticcheck ## format, vet, staticcheck and the repository's own rules
	$(GO) test -count=1 ./internal/lint

house: ## how much of the engine there is to read, and fail beyond the limits
	@$(GO) run ./internal/house/cmd

house-ratchet: ## the same, and fail only if what is beyond its limit has grown
	@$(GO) run ./internal/house/cmd -ratchet

vet: ## go vet, under every build tag
	$(GO) vet ./...
	$(GO) vet -tags pawl_nognet,pawl_invariants ./...

staticcheck: ## staticcheck, at a pinned version
	$(GO) run $(STATICCHECK) ./...
	$(GO) run $(STATICCHECK) -tags pawl_nognet ./resp/... ./engine/...

vulns: ## known vulnerabilities that the code calls, in what it imports and in the Go version
	@GO="$(GO)" .ci/vulns

fmt: ## format the code
	gofmt -w .

fmt-check: ## complain about unformatted code
	@files="$$(gofmt -l .)"; if [ -n "$$files" ]; then echo "not formatted (make fmt):"; echo "$$files"; exit 1; fi

tidy-check: ## complain about a go.mod that is not tidy
	$(GO) mod tidy -diff
	$(GO) -C bench/peers mod tidy -diff
	$(GO) -C examples/fencing mod tidy -diff
	$(GO) -C internal/web/browser mod tidy -diff
	$(GO) -C plugin/pawlprom mod tidy -diff
	$(GO) -C plugin/pawlprom/grafana mod tidy -diff
	$(GO) -C plugin/pawlotel mod tidy -diff
	$(GO) -C plugin/cost mod tidy -diff

# One processor of each: no file of the project is for one alone.
cross: ## build and vet for macOS and Windows, and without gnet
	@set -e; for target in darwin/arm64 windows/amd64; do \
		echo "$(GO) build and vet, $$target"; \
		GOOS=$${target%/*} GOARCH=$${target#*/} $(GO) build ./...; \
		GOOS=$${target%/*} GOARCH=$${target#*/} $(GO) vet ./...; \
	done
	$(GO) build -tags pawl_nognet ./...

peers: ## vet, lint, build and race-test the modules of their own: the comparison with other clients, the example with a database
	@set -e; for module in bench/peers examples/fencing internal/web/browser plugin/pawlprom plugin/pawlprom/grafana plugin/pawlotel plugin/cost; do \
		$(GO) -C $$module vet ./...; \
		$(GO) -C $$module build -o /dev/null ./...; \
		$(GO) -C $$module run $(STATICCHECK) ./...; \
	done
	@. .ci/servers && set -e && for module in bench/peers plugin/pawlprom plugin/pawlotel; do $(GO) -C $$module test -race -count=1 ./...; done

bench: ## a benchmark on a redis-server of its own: make bench ARGS='hot --goroutines 64'
	$(GO) run ./cmd/pawl bench $(ARGS)
