# pgfathom: the two commands a fresh Debian or Ubuntu machine with a Rust toolchain needs are
#   make demo     see it work, on a throwaway PostgreSQL
#   make test     everything that must hold before a commit
# Both install what is missing (scripts/install-deps says what and why; root or sudo is needed only then).

CARGO ?= cargo
# cargo's own variable decides where the build goes, here as everywhere.
BUILD = $(or $(CARGO_TARGET_DIR),target)
# Flags for the demo: make demo DEMO='--rows 100000 --keep'
DEMO ?=
# Which suites to run, by parts of their names: make test TESTS='load record'
TESTS ?=
# Flags for the proof: make prove PROVE='-T 5 -o proof'
PROVE ?=
# What to compare: make bench BENCH=load
BENCH ?=

.PHONY: help demo prove test test-all drills build bench audit fmt install-deps clean

help:
	@echo 'make demo          fill, verify, drive and report on a throwaway PostgreSQL'
	@echo 'make prove         every promise of every kind of cluster, on clusters that are made for it'
	@echo 'make test          style, lints, all tests (units, live servers, report page)'
	@echo 'make test-all      the same on every PostgreSQL there is, with all drills, a third of the catalogue, all proofs and longer fuzzing'
	@echo 'make drills        provoke conditions on throwaway servers and let explain find them'
	@echo 'make build         the optimised binary: $(BUILD)/release/pgfathom'
	@echo 'make bench         side by side with pgbench and psql (docs/benchmarks.md)'
	@echo 'make audit         licences and banned dependencies (cargo-deny)'
	@echo 'make fmt           format the sources'
	@echo 'make install-deps  what demo and test need, without running them'
	@echo 'make clean         remove what was built'

demo:
	@scripts/install-deps demo
	$(CARGO) build --release --locked -p pgfathom
	@$(BUILD)/release/pgfathom demo $(DEMO)

# Power cuts and full disks need root; without it they are told as "not possible here".
prove:
	@scripts/install-deps demo
	$(CARGO) build --release --locked -p pgfathom
	@$(BUILD)/release/pgfathom prove all --local all -T 2 $(PROVE)

# The tests come last and all of them run, so that the last lines are their verdict.
test:
	@scripts/install-deps test
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked --quiet -- -D warnings
	@scripts/test $(TESTS)

# What make test leaves for a night: every suite on every PostgreSQL of the machine, longer fuzzing, all drills, all proofs.
test-all:
	@scripts/install-deps test
	@PGFATHOM_TEST_ALL=1 PGFATHOM_FUZZ_SECONDS=$(or $(PGFATHOM_FUZZ_SECONDS),120) scripts/test
	@scripts/drills --third
	$(MAKE) prove

# One at a time: a drill that measures must not share the processors with another.
drills:
	@scripts/install-deps test
	@scripts/drills

build:
	$(CARGO) build --release --locked -p pgfathom

bench:
	@scripts/install-deps demo
	$(CARGO) build --release --locked -p pgfathom
	@scripts/bench $(BENCH)

audit:
	@scripts/audit

fmt:
	$(CARGO) fmt --all

install-deps:
	@scripts/install-deps test

clean:
	$(CARGO) clean
