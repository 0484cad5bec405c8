# Everything a developer runs. `make help` lists the targets.

# What `make run` looks at, and what it asks.
DIR ?= .
PROMPT ?= Survey this directory and write a report

CARGO ?= cargo
# Where cargo builds: what long runs write goes there too.
TARGET := $(abspath $(or $(CARGO_TARGET_DIR),target))

.DEFAULT_GOAL := help
FAULTS ?= $(if $(HOURS),1000000,1200)
# Rows of another commit prove nothing about this one.
COMMIT := $(shell git describe --always --dirty 2>/dev/null || echo none)
# The nats-server that `setup` brought or found. ailoop looks only at this variable and at PATH, so that it starts no
# program of a foreign directory. A shell looks again for each recipe, since `setup` may have just run.
AILOOP_NATS_SERVER ?= $(shell test -x .tools/nats-server && echo "$(CURDIR)/.tools/nats-server" || command -v nats-server)
export AILOOP_NATS_SERVER
# Of long runs that draw at random: a number repeats a run. `make test` has fixed seeds of its own.
SEED ?= random

.PHONY: help setup run up up-apart test check deploy-check image dist pods sim bench growth chaos leaders restore upgrade hostile drain mcp clients sdk console console-test lab

help: ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | awk -F'\t' '{ printf "  make %-14s %s\n", $$1, $$2 }'

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

deploy-check: setup ## The Helm chart, the manifests, nats-server's configuration and the image's files, without a cluster
	@scripts/deploy-check.sh
	@python3 -m unittest discover --quiet --start-directory scripts/image/tests
	@scripts/image.sh documents

image: setup ## The container image for this processor, without Docker: OUT=target/image PROFILE=release TAG=ailoop:dev; needs root to try it
	@scripts/image.sh image

dist: ## The stripped binary as an archive, and a script that installs it: OUT=target/dist BINARY=<one that was built before>
	@scripts/dist.sh $(if $(BINARY),--binary "$(BINARY)") $(if $(OUT),--out "$(OUT)")

pods: setup ## Helm chart and overlays without a cluster, disturbed under load; ONLY=helm/local|local|prod|FILE, KEEP=1, TRIAL=rotation; needs root
	@$(CARGO) build --locked --bin ailoop
	@scripts/pods.sh --ailoop $(TARGET)/debug/ailoop $(if $(KEEP),--keep) $(if $(VERBOSE),--verbose) $(if $(TRIAL),--trial $(TRIAL)) $(ONLY)

sim: ## Simulate sessions in virtual time: many seeds, then planted bugs; LONG=1: ten million inputs
	$(CARGO) run --quiet --profile sim --locked --package simulation --bin sim $(if $(LONG),-- --inputs 10000000 --fleets 5000)

bench: setup ## Measure the loop, next to what as many raw messages cost; about seven minutes
	@$(CARGO) run --quiet --release --locked --package bench

growth: setup ## What a step costs among 100 000 sessions and in a long one; about twenty minutes
	@$(CARGO) run --quiet --release --locked --package bench -- growth

chaos: setup ## Every fault at every step, on one nats-server and on three: FAULTS=1200 in all, or HOURS=8; goes on where it ended at this commit
	AILOOP_DURATIONS=1 AILOOP_CHAOS_SEED=$(SEED) AILOOP_CHAOS_FAULTS=$(FAULTS) AILOOP_CHAOS_FLEETS=4 AILOOP_CHAOS_NODES=1,3 AILOOP_CHAOS_FILE=$(TARGET)/chaos/$(COMMIT)/rows.jsonl \
	$(if $(HOURS),AILOOP_CHAOS_HOURS=$(HOURS)) $(CARGO) test --quiet --locked --workspace --test suite chaos::every_step -- --nocapture

leaders: setup ## Kill the leader of a stream every 10 s for five minutes, on three nats-servers under load
	AILOOP_DURATIONS=1 AILOOP_LEADERS_SECONDS=300 $(CARGO) test --quiet --locked --workspace --test suite chaos::leaders -- --nocapture

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

console-test: setup ## The web console in a browser against a fleet whose edge is killed meanwhile; ONLY=hostile names checks, PICTURES=DIR; needs chromium
	@$(CARGO) build --locked --bin ailoop
	@AILOOP_UNDER_TEST=$(TARGET)/debug/ailoop ONLY="$(ONLY)" scripts/console.sh test

lab: setup ## Rare checks and measurements: NAME=peers; without NAME it lists them
	@$(MAKE) --no-print-directory --file scripts/lab.mk CARGO="$(CARGO)" TARGET="$(TARGET)" SEED="$(SEED)" $(or $(NAME),list)
