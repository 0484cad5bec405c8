# Checks and measurements that are rarely run. `make lab` lists them, and `make lab NAME=<name>` runs one.

# Programs that cargo can start take themselves for started by it where this is set.
unexport CARGO
FUZZ_SECONDS ?= 600
OPERATIONS ?= 100000
MINUTES ?= 30
STREAMS ?= 1000000

.PHONY: list package advisories image-check release-notes release-check publish manifests alerts conformance fuzz peers soak random-faults tool-faults local-model local-chain third-party console-check console-cost phoenix faulty garbage clean

list:
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | awk -F'\t' '{ printf "  make lab NAME=%-14s %s\n", $$1, $$2 }'

package: ## Pack the crates that are published, and build each from its archive, without the network
	@CARGO="$(CARGO)" scripts/package.sh

advisories: ## Known vulnerabilities of dependencies; needs the network
	@scripts/dependencies.sh advisories

image-check: ## Try the image of OUT again, as root
	@scripts/image.sh check

release-notes: ## What CHANGELOG.md says about VERSION
	@scripts/release.sh notes

release-check: ## Whether VERSION, Cargo.toml and CHANGELOG.md agree
	@scripts/release.sh check

publish: ## Sign and publish the images below OUT to REPOSITORY; for the release workflow, needs skopeo, cosign and gh
	@scripts/release.sh publish

manifests: ## Write what is generated in deploy/: the schema of the chart's values, deploy/kubernetes/base, dashboards of Grafana
	@scripts/deploy-check.sh manifests

alerts: ## Prometheus beside a fleet: each alert fires when its condition holds, and only then; ONLY=AiloopQueueOld names alerts; needs prometheus
	@$(CARGO) build --locked --bin ailoop
	@PYTHONPATH=scripts python3 -m alerts --ailoop $(TARGET)/debug/ailoop $(ONLY)

conformance: ## The in-memory server against nats-server: OPERATIONS (100,000) random operations, two minutes on two cores
	AILOOP_CONFORMANCE_OPERATIONS=$(OPERATIONS) $(CARGO) test --quiet --locked --workspace --test suite nats::conformance -- --nocapture

fuzz: ## Feed what reads foreign bytes with random ones, FUZZ_SECONDS (600) for each target; needs nightly and cargo-fuzz
	@scripts/fuzz.sh $(FUZZ_SECONDS)

peers: ## ailoop beside Restate, DBOS and LangGraph on the same sessions; about ten minutes; ONLY=ailoop,dbos names some; needs pip and npm
	@$(CARGO) build --quiet --release --locked --package bench
	@PYTHONPATH=scripts python3 -m peers --target $(TARGET) $(if $(ONLY),--peers "$(ONLY)")

soak: ## Memory of each service under load; MINUTES=30
	@$(CARGO) run --quiet --release --locked --package bench -- soak --minutes $(MINUTES)

random-faults: ## Users who interfere, models that fail, processes that die at random: 100 faults
	AILOOP_RANDOM_FAULTS_SEED=$(SEED) AILOOP_RANDOM_FAULTS=100 $(CARGO) test --quiet --locked --workspace --test campaigns random_faults -- --nocapture

tool-faults: ## Tools in three languages under 200 sessions, tools and executors killed at random, KILLS=60
	@scripts/javascript.sh
	AILOOP_TOOL_FAULTS_SEED=$(SEED) AILOOP_TOOL_FAULTS_KILLS=$(or $(KILLS),60) \
	$(CARGO) test --quiet --locked --workspace --test campaigns tool_faults -- --nocapture

local-model: ## Fetch and serve a small model on the CPU, PORT=8080; `ailoop run --model local` streams from it
	@scripts/local-model.sh

local-chain: ## Ten runs of that model with tools, RUNS=10: each must end by itself with an answer
	@CARGO="$(CARGO)" scripts/local-chain.sh

third-party: ## The gateway against servers that others wrote: aimock (needs npm) and llama.cpp
	@scripts/third-party.sh

console-check: ## Whether the committed console is what its sources give, and its unit tests; skipped without Node.js
	@scripts/console.sh check

console-cost: ## CPU of an edge and requests a second with CONSOLES open consoles (100), with a release build; needs chromium
	@$(CARGO) build --release --locked --bin ailoop
	@AILOOP_UNDER_TEST=$(TARGET)/release/ailoop CONSOLES="$(CONSOLES)" scripts/console.sh cost

phoenix: ## Spans of a fleet with killed replicas in Arize Phoenix, compared with the log; KEEP=1, SILENT=REPLICA, PICTURE=FILE
	@$(CARGO) build --locked --bin ailoop
	@scripts/phoenix.sh --ailoop $(TARGET)/debug/ailoop $(if $(KEEP),--keep) $(if $(SILENT),--silent $(SILENT)) $(if $(PICTURE),--picture $(PICTURE))

faulty: ## 500 sessions against a provider that fails at every third request
	AILOOP_FAULTY_SESSIONS=500 $(CARGO) test --quiet --locked --workspace --test suite a_third_of_all -- --nocapture

garbage: ## Broken streams of model providers, STREAMS=1000000: none may pass for half a tool call
	AILOOP_GARBAGE_STREAMS=$(STREAMS) $(CARGO) test --quiet --release --locked --package model-gateway --test suite garbage_streams -- --nocapture

clean: ## Remove what was built and what sessions left in .ailoop/; .tools/ stays
	$(CARGO) clean
	rm -rf .ailoop
