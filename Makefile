# Everything a person types. The logic is in scripts/; `make help` lists the targets.

.PHONY: help build test demo demo-dtensor check bench soak format clean

help: ## this list
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/:.*## /\t/'

build: ## system packages, .venv, C core and extension; .venv/bin/python imports dtorch
	@scripts/build.sh

test: ## all tests: C, Python on both I/O backends, sanitizers, other Pythons, the wheel
	@scripts/test.sh

demo: ## sentence embeddings by many coroutines, beside torch in an executor
	@scripts/demo.sh

demo-dtensor: ## the same on a mesh of four simulated devices, beside one device
	@scripts/demo_dtensor.sh

check: ## clang-format, clang-tidy, ruff, mypy, tidy and layering tests
	@scripts/check.sh

bench: ## C micro-benchmarks; dtorch beside torch, JAX and asyncio, as ratios
	@scripts/bench.sh

soak: ## random programs beside torch, and the simulator, without end (SOAK_PROGRAMS=n, SOAK_SECONDS=n for an end)
	@scripts/soak.sh

format: ## rewrite C and Python sources in the project's format
	@scripts/format.sh

clean: ## remove everything that was built (.venv too)
	rm -rf build .venv .venvs dist python/dtorch/_C*.so
