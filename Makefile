# Everything a developer runs. `make help` lists the targets.

# What `make run` looks at, and what it asks.
DIR ?= .
PROMPT ?= Survey this directory and write a report

CARGO ?= cargo
# Where cargo builds: what long runs write goes there too.
TARGET := $(abspath $(or $(CARGO_TARGET_DIR),target))

.DEFAULT_GOAL := help
FAULTS ?= $(if $(HOURS),1000000,1000)
FUZZ_SECONDS ?= 600
OPERATIONS ?= 100000
# Rows of another commit prove nothing about this one.
COMMIT := $(shell git describe --always --dirty 2>/dev/null || echo none)
MINUTES ?= 30
STREAMS ?= 1000000
# The nats-server that `setup` brought or found. ailoop looks only at this variable and at PATH, so that it starts no
# program of a foreign directory. A shell looks again for each recipe, since `setup` may have just run.
AILOOP_NATS_SERVER ?= $(shell test -x .tools/nats-server && echo "$(CURDIR)/.tools/nats-server" || command -v nats-server)
export AILOOP_NATS_SERVER
# Of long runs that draw at random: a number repeats a run. `make test` has fixed seeds of its own.
SEED ?= random

.PHONY: help setup run up up-apart test check package advisories deploy-check manifests alerts pods image image-check dist release-notes release-check publish sim conformance fuzz chaos leaders random-faults tool-faults restore upgrade hostile drain bench peers growth soak local-model local-chain third-party mcp clients sdk console console-check console-test console-cost phoenix faulty garbage clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /|/' | awk -F'|' '{ printf "  make %-14s %s\n", $$1, $$2 }'

setup: ## Find a nats-server, or bring a pinned one to .tools/
	@scripts/setup.sh

run: setup ## Run one session over DIR (default .) with a fleet of its own; no key needed
	@AILOOP_CONFIG=config $(CARGO) run --locked --bin ailoop -- run --agent e --root "$(DIR)" $(if $(shell test -t 2 && echo y),--stay) "$(PROMPT)"

up: setup ## Run the whole fleet in one process, until Ctrl-C
	@AILOOP_CONFIG=config $(CARGO) run --locked --bin ailoop -- up --root "$(DIR)"

up-apart: setup ## Run each service as a process with a NATS user of its own, until Ctrl-C
	@$(CARGO) build --locked --bin ailoop
	@DIR="$(DIR)" scripts/up-apart.sh

test: setup ## Every test; goes on after one that fails, and ends with the failed ones and the seeds
	@CARGO="$(CARGO)" scripts/test.py

check: ## Format, lints, layout, documentation, published packages, and licences, sources and use of dependencies; warnings are errors
	$(CARGO) fmt --all -- --check
	python3 scripts/layout.py --check
	python3 scripts/workflows.py
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	@# A target without tests of its own is in no `--all-targets`.
	$(CARGO) clippy --workspace --test campaigns --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked --quiet
	@scripts/dependencies.sh
	@CARGO="$(CARGO)" scripts/package.sh contents

package: ## Pack the crates that are published, and build each from its archive, without the network
	@CARGO="$(CARGO)" scripts/package.sh

advisories: ## Known vulnerabilities of dependencies; needs the network
	@scripts/dependencies.sh advisories

deploy-check: setup ## The Helm chart, the manifests, nats-server's configuration and the image's files, without a cluster
	@scripts/deploy-check.sh
	@python3 -m unittest discover --quiet --start-directory scripts/image/tests
	@scripts/image.sh documents

image: setup ## The container image for this processor, without Docker: OUT=target/image PROFILE=release TAG=ailoop:dev; needs root to try it
	@scripts/image.sh image

image-check: setup ## Try the image of OUT again, as root
	@scripts/image.sh check

dist: ## The stripped binary as an archive, and a script that installs it: OUT=target/dist BINARY=<one that was built before>
	@scripts/dist.sh $(if $(BINARY),--binary "$(BINARY)") $(if $(OUT),--out "$(OUT)")

release-notes: ## What CHANGELOG.md says about VERSION
	@scripts/release.sh notes

release-check: ## Whether VERSION, Cargo.toml and CHANGELOG.md agree
	@scripts/release.sh check

publish: ## Sign and publish the images below OUT to REPOSITORY; for the release workflow, needs skopeo, cosign and gh
	@scripts/release.sh publish

manifests: ## Render deploy/kubernetes/base from the Helm chart
	@scripts/deploy-check.sh manifests

alerts: setup ## Prometheus beside a fleet: each alert fires when its condition holds, and only then; ONLY=AiloopQueueOld names alerts; needs prometheus
	@$(CARGO) build --locked --bin ailoop
	@PYTHONPATH=scripts python3 -m alerts --ailoop $(TARGET)/debug/ailoop $(ONLY)

pods: setup ## Helm chart and overlays without a cluster, disturbed under load; ONLY=helm/local|local|prod|FILE, KEEP=1, TRIAL=rotation; needs root
	@$(CARGO) build --locked --bin ailoop
	@scripts/pods.sh --ailoop $(TARGET)/debug/ailoop $(if $(KEEP),--keep) $(if $(VERBOSE),--verbose) $(if $(TRIAL),--trial $(TRIAL)) $(ONLY)

sim: ## Simulate sessions in virtual time: many seeds, then planted bugs; LONG=1: ten million inputs
	$(CARGO) run --quiet --profile sim --locked --package simulation --bin sim $(if $(LONG),-- --inputs 10000000 --fleets 5000)

conformance: setup ## The in-memory server against nats-server: OPERATIONS (100,000) random operations, two minutes on two cores
	AILOOP_CONFORMANCE_OPERATIONS=$(OPERATIONS) $(CARGO) test --quiet --locked --workspace --test suite nats::conformance -- --nocapture

fuzz: ## Feed what reads foreign bytes with random ones, FUZZ_SECONDS (600) for each target; needs nightly and cargo-fuzz
	@scripts/fuzz.sh $(FUZZ_SECONDS)

bench: setup ## Measure the loop, next to what as many raw messages cost; about seven minutes
	@$(CARGO) run --quiet --release --locked --package bench

peers: setup ## ailoop beside Restate, DBOS and LangGraph on the same sessions; about ten minutes; ONLY=ailoop,dbos names some; needs pip and npm
	@$(CARGO) build --quiet --release --locked --package bench
	@PYTHONPATH=scripts python3 -m peers --target $(TARGET) $(if $(ONLY),--peers "$(ONLY)")

growth: setup ## What a step costs among 100 000 sessions and in a long one; about twenty minutes
	@$(CARGO) run --quiet --release --locked --package bench -- growth

soak: setup ## Memory of each service under load; MINUTES=30
	@$(CARGO) run --quiet --release --locked --package bench -- soak --minutes $(MINUTES)

chaos: setup ## Every fault at every step, on one nats-server and on three: FAULTS=1000 in all, or HOURS=8; goes on where it ended at this commit
	AILOOP_DURATIONS=1 AILOOP_CHAOS_SEED=$(SEED) AILOOP_CHAOS_FAULTS=$(FAULTS) AILOOP_CHAOS_FLEETS=4 AILOOP_CHAOS_NODES=1,3 AILOOP_CHAOS_FILE=$(TARGET)/chaos/$(COMMIT)/rows.jsonl \
	$(if $(HOURS),AILOOP_CHAOS_HOURS=$(HOURS)) $(CARGO) test --quiet --locked --workspace --test suite chaos::every_step -- --nocapture

leaders: setup ## Kill the leader of a stream every 10 s for five minutes, on three nats-servers under load
	AILOOP_DURATIONS=1 AILOOP_LEADERS_SECONDS=300 $(CARGO) test --quiet --locked --workspace --test suite chaos::leaders -- --nocapture

random-faults: setup ## Users who interfere, models that fail, processes that die at random: 100 faults
	AILOOP_RANDOM_FAULTS_SEED=$(SEED) AILOOP_RANDOM_FAULTS=100 $(CARGO) test --quiet --locked --workspace --test campaigns random_faults -- --nocapture

tool-faults: setup ## Tools in three languages under 200 sessions, tools and executors killed at random, KILLS=60
	@scripts/javascript.sh
	AILOOP_TOOL_FAULTS_SEED=$(SEED) AILOOP_TOOL_FAULTS_KILLS=$(or $(KILLS),60) \
	$(CARGO) test --quiet --locked --workspace --test campaigns tool_faults -- --nocapture

restore: setup ## A nats-server that comes back with an older store, under a running fleet; ONLY=claims names trials
	AILOOP_RESTORE_ONLY="$(ONLY)" AILOOP_RESTORE_FILE=$(TARGET)/restore/findings.jsonl \
	$(CARGO) test --quiet --locked --workspace --test campaigns restore -- --nocapture

upgrade: setup ## An older version beside this one, every replica replaced in turn: OLD=<path of its ailoop> or OLD_REV=<revision>
	@OLD="$(OLD)" OLD_REV="$(OLD_REV)" CARGO="$(CARGO)" scripts/upgrade.sh

hostile: setup ## Hostile clients, tools and model servers beside sessions of others, and a table; ONLY=silent names trials
	$(CARGO) build --quiet --release --locked --bin ailoop
	AILOOP_UNDER_TEST=$(TARGET)/release/ailoop AILOOP_HOSTILE_SEED=$(SEED) AILOOP_HOSTILE_ONLY="$(ONLY)" AILOOP_HOSTILE_FILE=$(TARGET)/hostile.md \
	$(CARGO) test --quiet --locked --workspace --test campaigns hostile -- --nocapture

drain: setup ## Restart every replica in turn under load: 100 sessions, one replica every 20 s
	AILOOP_DURATIONS=1 AILOOP_DRAIN_SESSIONS=100 AILOOP_DRAIN_EVERY=20 $(CARGO) test --quiet --locked --workspace --test suite drain:: -- --nocapture

local-model: ## Fetch and serve a small model on the CPU, PORT=8080; `ailoop run --model local` streams from it
	@scripts/local-model.sh

local-chain: setup ## Ten runs of that model with tools, RUNS=10: each must end by itself with an answer
	@CARGO="$(CARGO)" scripts/local-chain.sh

third-party: ## The gateway against servers that others wrote: aimock (needs npm) and llama.cpp
	@scripts/third-party.sh

mcp: setup ## MCP servers that others wrote, over stdio and HTTP: fetch them, call them, kill them (needs python3 and npm)
	@scripts/mcp-servers.sh

clients: setup ## Public SDKs, unmodified, run agents of a fleet through the edge, which is killed meanwhile; ONLY=langchain names checks
	@$(CARGO) build --locked --bin ailoop
	@scripts/clients.sh --ailoop $(TARGET)/debug/ailoop $(if $(ONLY),--only "$(ONLY)")

sdk: setup ## The Python and TypeScript SDKs and every program of examples/ against a fleet whose edge is killed meanwhile; ONLY=gate names tests
	@$(CARGO) build --locked --bin ailoop
	@scripts/sdk.sh --ailoop $(TARGET)/debug/ailoop $(if $(ONLY),--only "$(ONLY)")

console: ## Build the web console from services/edge/console; needs Node.js; commit what it writes
	@scripts/console.sh build

console-check: ## Whether the committed console is what its sources give, and its unit tests; skipped without Node.js
	@scripts/console.sh check

console-test: setup ## The web console in a browser against a fleet whose edge is killed meanwhile; ONLY=hostile names checks, PICTURES=DIR; needs chromium
	@$(CARGO) build --locked --bin ailoop
	@AILOOP_UNDER_TEST=$(TARGET)/debug/ailoop ONLY="$(ONLY)" scripts/console.sh test

console-cost: setup ## CPU of an edge and requests a second with CONSOLES open consoles (100), with a release build; needs chromium
	@$(CARGO) build --release --locked --bin ailoop
	@AILOOP_UNDER_TEST=$(TARGET)/release/ailoop CONSOLES="$(CONSOLES)" scripts/console.sh cost

phoenix: setup ## Spans of a fleet with killed replicas in Arize Phoenix, compared with the log; KEEP=1, SILENT=REPLICA, PICTURE=FILE
	@$(CARGO) build --locked --bin ailoop
	@scripts/phoenix.sh --ailoop $(TARGET)/debug/ailoop $(if $(KEEP),--keep) $(if $(SILENT),--silent $(SILENT)) $(if $(PICTURE),--picture $(PICTURE))

faulty: setup ## 500 sessions against a provider that fails at every third request
	AILOOP_FAULTY_SESSIONS=500 $(CARGO) test --quiet --locked --workspace --test suite a_third_of_all -- --nocapture

garbage: ## Broken streams of model providers, STREAMS=1000000: none may pass for half a tool call
	AILOOP_GARBAGE_STREAMS=$(STREAMS) $(CARGO) test --quiet --release --locked --package model-gateway --test suite garbage_streams -- --nocapture

clean: ## Remove what was built and what sessions left in .ailoop/; .tools/ stays
	$(CARGO) clean
	rm -rf .ailoop
