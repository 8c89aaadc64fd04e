// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Package kube has the tests with a real kubelet, on containerd's CRI: `make
// integration RUN=TestKube`. There is no cluster: the kubelet runs static pods,
// and is asked by its own API.
package kube
