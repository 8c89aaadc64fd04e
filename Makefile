# SPDX-FileCopyrightText: The hetGPU authors
# SPDX-License-Identifier: Apache-2.0

PREFIX  ?= /usr/local
DESTDIR ?=
# The runtime that the integration tests run. "io.containerd.runc.v2" is the
# stock shim, as a reference for the same tests.
RUNTIME ?= io.hetgpu.v2
# A regular expression that picks integration tests.
RUN     ?= .
# Options of the suite for GPUs.
ARGS    ?=
# The engine that the container of the demonstration asks for.
ENGINE  ?=

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
# A shim's -v and -info are containerd's code and tell its version: ours is the
# revision.
LDFLAGS := -s -w -X github.com/hetgpu/containerd-shim-hetgpu/internal/version.Version=$(VERSION) \
	-X github.com/containerd/containerd/v2/version.Revision=hetgpu-$(VERSION)
COMMANDS := $(notdir $(wildcard cmd/*))
# Only what calls a driver's library needs cgo; the rest is static.
CGO_COMMANDS := hetgpu-gpu
# Shims speak ttrpc. containerd builds its own without gRPC too: that is a third
# of the program, which starts three times for a container.
TAGS_containerd-shim-hetgpu-v2 := no_grpc

export HETGPU_CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/hetgpu

.PHONY: help
help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: setup
setup: ## install and build everything that the machine needs
	@hack/setup.sh

.PHONY: setup-run
setup-run: ## only what runs containers: CRIU, runc, containerd, nerdctl
	@hack/setup.sh packages criu runc containerd nerdctl

.PHONY: build
build: $(addprefix bin/,$(COMMANDS)) libhetcuda ## build our programs into bin/

# Go knows what is up to date.
.PHONY: $(addprefix bin/,$(COMMANDS))
$(addprefix bin/,$(COMMANDS)): bin/%:
	CGO_ENABLED=$(if $(filter $*,$(CGO_COMMANDS)),1,0) go build -trimpath -tags '$(TAGS_$*)' -ldflags '$(LDFLAGS)' -o $@ ./cmd/$*

.PHONY: libhetcuda
libhetcuda: ## the library that stands before the driver's in containers
	@$(MAKE) --no-print-directory -C libhetcuda OUT='$(CURDIR)/bin/libhetcuda' VERSION='$(VERSION)'

.PHONY: install
install: build ## install our programs below DESTDIR and PREFIX
	install -d '$(DESTDIR)$(PREFIX)/bin'
	install $(addprefix bin/,$(COMMANDS)) '$(DESTDIR)$(PREFIX)/bin/'
	install -d '$(DESTDIR)$(PREFIX)/lib/hetgpu'
	install bin/libhetcuda/libcuda.so.1 '$(DESTDIR)$(PREFIX)/lib/hetgpu/'

.PHONY: test
test: ## set up, lint, unit tests with the race detector, integration tests
	@hack/test.sh

.PHONY: unit
unit: ## unit tests with the race detector
	@hack/gotest.sh -race -timeout 30m ./...

.PHONY: standin
standin: ## the libraries that stand in for a GPU's driver in tests
	@$(MAKE) --no-print-directory -C integration/standin OUT='$(CURDIR)/bin/standin'

.PHONY: standin-musl
standin-musl: ## the same, for programs of images with musl
	@$(MAKE) --no-print-directory -C integration/standin CC=musl-gcc OUT='$(CURDIR)/bin/standin-musl'

.PHONY: integration
integration: build standin standin-musl ## tests with real containerd, runc, CRIU, ctr, nerdctl, kubelet, API server (RUNTIME=, RUN=)
	@HETGPU_TEST_RUNTIME=$(RUNTIME) hack/integration.sh '$(RUN)'

.PHONY: demo
demo: setup-run build ## run, checkpoint and restore a container, step by step (ENGINE=split)
	@go run ./integration/demo -engine '$(ENGINE)'

.PHONY: gpu-files
gpu-files: setup-run build standin
	@hack/setup.sh kubelet cni toolkit
	@hack/gpu-bundle.sh

.PHONY: gpu-bundle
gpu-bundle: gpu-files ## dist/gpu-bundle.tar.xz: all that a host with a GPU and no network needs
	@hack/gpu-bundle.sh pack

.PHONY: gpu-test
gpu-test: gpu-files ## run the suite on this host's GPU; report in dist/gpu-test (ARGS=)
	@dist/gpu-bundle/gpu-test.sh dist/gpu-test $(ARGS)

.PHONY: gpu-rehearsal
gpu-rehearsal: gpu-files ## the same suite without a GPU, with the stand-in driver
	@dist/gpu-bundle/gpu-test.sh dist/gpu-rehearsal -stand-in bin/standin -sizes 16,32,64,16:disk -repetitions 3,2,1,3 $(ARGS)

.PHONY: bench
bench: setup-run build ## compare with the stock shim: latency, memory, checkpoint; report in dist/bench
	@go run ./integration/bench -out dist/bench

.PHONY: lint
lint: ## golangci-lint, go mod tidy, formatting
	@hack/lint.sh

.PHONY: fmt
fmt: ## format Go and fix what the linters can
	@hack/lint.sh --fix

.PHONY: generate
generate: ## regenerate generated files
	go generate ./...

.PHONY: clean
clean: ## remove what was built here
	rm -rf bin dist
