// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

// The annotations by which a container says what its client can't.
// docs/formats.md describes them for users.
const (
	// AnnotationEngine chooses how GPU state is captured.
	AnnotationEngine = "io.hetgpu.engine"
	// AnnotationCheckpointExit stops the container after a checkpoint whose
	// request carries no options (nerdctl and the CRI send none to us).
	AnnotationCheckpointExit = "io.hetgpu.checkpoint.exit"
	// AnnotationCheckpointTimeout bounds a checkpoint and a restore, each.
	AnnotationCheckpointTimeout = "io.hetgpu.checkpoint.timeout"
	// AnnotationTCP says what becomes of established TCP connections.
	AnnotationTCP = "io.hetgpu.tcp"
	// AnnotationNVIDIAIPC promises that the programs use no legacy CUDA IPC.
	AnnotationNVIDIAIPC = "io.hetgpu.nvidia.ipc"
	// AnnotationRestore names a snapshot that is restored in place of the start of
	// the container's command.
	AnnotationRestore = "io.hetgpu.restore"
	// AnnotationCRIUConfig is runc's: the CRIU configuration file to use.
	AnnotationCRIUConfig = "org.criu.config"
)

// The annotations by which containerd's CRI says what a container is in its pod
// (containerd 2.4, internal/cri/annotations).
const (
	annotationContainerType    = "io.kubernetes.cri.container-type"
	annotationContainerName    = "io.kubernetes.cri.container-name"
	annotationImageName        = "io.kubernetes.cri.image-name"
	annotationSandboxNamespace = "io.kubernetes.cri.sandbox-namespace"
	typeSandbox                = "sandbox"
	// AnnotationSandboxID is the id of the container that holds the pod's namespaces.
	AnnotationSandboxID = "io.kubernetes.cri.sandbox-id"
)

// TCP is what becomes of established TCP connections.
type TCP string

const (
	// TCPDefault leaves it to the request's options: without "open TCP" CRIU
	// refuses to dump a process that has connections.
	TCPDefault TCP = ""
	// TCPEstablished saves and restores them.
	TCPEstablished TCP = "established"
	// TCPClose restores them closed.
	TCPClose TCP = "close"
)

// Engine is the value of [AnnotationEngine].
type Engine string

const (
	// EngineAuto takes the engine that fits the container's devices.
	EngineAuto Engine = "auto"
	// EngineDriver takes the vendor's process checkpoint.
	EngineDriver Engine = "driver"
	// EngineSplit has device memory moved apart from the processes, by a library
	// in front of the driver's.
	EngineSplit Engine = "split"
	// EngineNone says that the container uses no GPU, whatever it could see.
	EngineNone Engine = "none"
)

// Policy is what the annotations of a container ask for.
type Policy struct {
	Engine         Engine
	CheckpointExit bool
	// Timeout is 0 where the container asks for none.
	Timeout time.Duration
	TCP     TCP
	// NoLegacyIPC is the promise of [AnnotationNVIDIAIPC].
	NoLegacyIPC bool
	// Restore is the name of a snapshot, "" for none.
	Restore string
}

// ParsePolicy reads the annotations. Its error names every one that is wrong.
//
// All containers of a Kubernetes pod have the pod's annotations, the sandbox too,
// to which none of ours is addressed. One that ends in "/NAME" is for the
// container of that name, and counts more there than the one without.
func ParsePolicy(annotations map[string]string) (Policy, error) {
	p := Policy{Engine: EngineAuto}
	if annotations[annotationContainerType] == typeSandbox {
		return p, nil
	}
	var errs []error
	read := func(key, want string, set func(value string) bool) {
		if name, inPod := annotations[annotationContainerName]; inPod {
			own := key + "/" + name
			if _, addressed := annotations[own]; addressed {
				key = own
			}
		}
		if value, ok := annotations[key]; ok && !set(value) {
			errs = append(errs, fmt.Errorf("annotation %s is %q, want %s", key, value, want))
		}
	}
	read(AnnotationEngine, "auto, driver, split or none", func(v string) bool {
		p.Engine = Engine(v)
		return p.Engine == EngineAuto || p.Engine == EngineDriver || p.Engine == EngineSplit || p.Engine == EngineNone
	})
	read(AnnotationCheckpointExit, "true or false", func(v string) (ok bool) {
		var err error
		p.CheckpointExit, err = strconv.ParseBool(v)
		return err == nil
	})
	read(AnnotationCheckpointTimeout, "a positive duration such as 90s or 10m", func(v string) bool {
		var err error
		p.Timeout, err = time.ParseDuration(v)
		return err == nil && p.Timeout > 0
	})
	read(AnnotationTCP, "established or close", func(v string) bool {
		p.TCP = TCP(v)
		return p.TCP == TCPEstablished || p.TCP == TCPClose
	})
	read(AnnotationNVIDIAIPC, "none", func(v string) bool {
		p.NoLegacyIPC = v == "none"
		return p.NoLegacyIPC
	})
	read(AnnotationRestore, "the name of a snapshot", func(v string) bool {
		p.Restore = v
		return v != ""
	})
	return p, errors.Join(errs...)
}
