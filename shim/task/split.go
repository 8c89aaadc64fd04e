// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package task

import (
	"context"
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/containerd/log"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/keeper"
	"github.com/hetgpu/containerd-shim-hetgpu/hooks/controldir"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/logfields"
	"github.com/hetgpu/containerd-shim-hetgpu/oci"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/checkpoint"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/snapshot"
)

var (
	_ checkpoint.GPU      = (*nvidia.SplitEngine)(nil)
	_ checkpoint.Streamer = (*nvidia.SplitEngine)(nil)
	_ checkpoint.GPU      = (*nvidia.StorageEngine)(nil)
	_ checkpoint.Streamer = (*nvidia.StorageEngine)(nil)
	_ checkpoint.Keeper   = (*nvidia.SplitEngine)(nil)
)

const (
	// libraryName is libhetcuda's file, by the name under which programs ask for
	// the driver's library.
	libraryName = "libcuda.so.1"
	// kernelDriver has the version of NVIDIA's kernel driver.
	kernelDriver = "/sys/module/nvidia/version"
	// userfaultfd is the device by which a process without privileges sees the
	// faults of its system calls too (Linux 6.1; Documentation/admin-guide/mm).
	userfaultfd = "/dev/userfaultfd"
)

// testedDrivers are the releases of the driver that libhetcuda was tested with.
// Another one is chosen by the annotation only.
var testedDrivers = []string{"580"}

// injected is what was put in front of a container's GPU driver; nil if nothing
// was.
type injected struct {
	// dir is libhetcuda's directory on the host.
	dir     string
	library snapshot.Library
	// environment is how its processes are told.
	environment oci.Environment
}

// Library is the manifest's word for it.
func (i *injected) Library() *snapshot.Library {
	if i == nil {
		return nil
	}
	return &i.library
}

// wantSplit finds the library, if the container is to have it. Where it was only
// to have it if possible, and it is not, c.engineReason says why not.
//
// One that was given our CDI device has it in any case. Its engine is the split
// engine then, unless it asks for the driver's.
func (s *service) wantSplit(ctx context.Context, c *container, spec *oci.Spec) (*injected, error) {
	must := oci.Injected(spec) || c.policy.Engine == oci.EngineSplit || c.policy.Engine == oci.EngineAuto && c.restoresLibrary()
	if !must && (c.policy.Engine != oci.EngineAuto || !s.config.Split.Enabled) {
		return nil, nil
	}
	found, err := s.findLibrary()
	if err == nil && !must {
		err = testedDriver(kernelDriver)
	}
	if err == nil {
		return found, nil
	}
	if must {
		return nil, fmt.Errorf("libhetcuda in front of the driver: %w: %w", err, errdefs.ErrFailedPrecondition)
	}
	log.G(ctx).WithError(err).WithField(logfields.ID, c.id).Info("the driver engine is used instead of the split engine")
	c.engineReason = err.Error()
	return nil, nil
}

// restoresLibrary tells whether the container's processes come with the library
// in their memory. What is wrong with the snapshot is found later.
func (c *container) restoresLibrary() bool {
	if c.request.Checkpoint == "" {
		return false
	}
	m, err := snapshot.ReadManifest(c.request.Checkpoint)
	return err == nil && m.Library != nil
}

// findLibrary finds libhetcuda on the host.
func (s *service) findLibrary() (*injected, error) {
	dir := s.config.Split.LibraryDir
	if dir == "" {
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		dir = filepath.Join(filepath.Dir(self), "..", "lib", "hetgpu")
	}
	id, err := buildID(filepath.Join(dir, libraryName))
	if err != nil {
		return nil, fmt.Errorf("libhetcuda is not installed: %w", err)
	}
	return &injected{dir: dir, library: snapshot.Library{BuildID: id}}, nil
}

// testedDriver fails for a release of the driver that the library was not tested
// with.
func testedDriver(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("the driver's version can't be told: %w", err)
	}
	version := strings.TrimSpace(string(text))
	release, _, _ := strings.Cut(version, ".")
	if !slices.Contains(testedDrivers, release) {
		return fmt.Errorf("libhetcuda was not tested with driver %s (tested: %s)", version, strings.Join(testedDrivers, ", "))
	}
	return nil
}

// buildID reads the name that the linker gave a library.
func buildID(name string) (string, error) {
	f, err := elf.Open(name)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	section := f.Section(".note.gnu.build-id")
	if section == nil {
		return "", fmt.Errorf("%s has no build id", name)
	}
	note, err := section.Data()
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	// Sizes of name and descriptor, type; "GNU\0"; descriptor (elf(5)).
	const head = 16
	if len(note) < head || int(binary.LittleEndian.Uint32(note[4:])) > len(note)-head || string(note[12:head]) != "GNU\x00" {
		return "", fmt.Errorf("%s: its build id is not understood", name)
	}
	return hex.EncodeToString(note[head:][:binary.LittleEndian.Uint32(note[4:])]), nil
}

// inject puts the library in front of the container's GPU driver.
func (s *service) inject(c *container, spec *oci.Spec) error {
	if c.injected == nil {
		return nil
	}
	in := oci.Injection{
		Library: c.injected.dir, Control: controldir.Path(c.bundle), Preload: s.config.Split.PreloadDir,
		// Nobody has asked for the library: what runs without it has to run with it.
		LeaveVariables: c.policy.Engine == oci.EngineAuto && !oci.Injected(spec),
	}
	if in.Preload != "" {
		names, err := filepath.Glob(filepath.Join(in.Preload, "*.so"))
		if err != nil {
			return err
		}
		for _, name := range names {
			in.PreloadNames = append(in.PreloadNames, filepath.Base(name))
		}
	}
	var err error
	if s.config.Split.Userfaultfd {
		if in.Userfaultfd, err = charDevice(userfaultfd); err != nil {
			return err
		}
	}
	if c.injected.environment, err = oci.Inject(spec, in); err != nil {
		return err
	}
	return controldir.Make(c.bundle)
}

// eject removes what inject made, and frees the device memory that is held for
// the container. It has ended.
func (c *container) eject(ctx context.Context) {
	if stream, ok := c.gpu.(checkpoint.Streamer); ok {
		if err := stream.Drop(ctx); err != nil {
			log.G(ctx).WithError(err).WithField(logfields.ID, c.id).Warn("device memory may stay in use until the shim ends")
		}
	}
	if c.injected == nil {
		return
	}
	if err := controldir.Remove(c.bundle); err != nil {
		log.G(ctx).WithError(err).WithField(logfields.ID, c.id).Warn("the container's bundle can't be removed")
	}
}

// checkLibrary fails if the library was replaced after the container began: its
// processes have the old one mapped, which no container could be given again.
func (s *service) checkLibrary(c *container) error {
	if c.injected == nil {
		return nil
	}
	id, err := buildID(filepath.Join(c.injected.dir, libraryName))
	if err == nil && id != c.injected.library.BuildID {
		err = errors.New("another one is installed now")
	}
	if err != nil {
		return fmt.Errorf("%w: the container runs libhetcuda's build %s: %w", checkpoint.ErrLibrary, c.injected.library.BuildID, err)
	}
	return nil
}

// split returns the split engine over the driver's, if the library is in the
// container; else the driver's, with its custom storage where it has one.
func (s *service) split(ctx context.Context, c *container, driver *nvidia.Engine) checkpoint.GPU {
	switch {
	case c.injected != nil && c.policy.Engine != oci.EngineDriver:
		s.mover.Warm(ctx)
		keepers := nvidia.KeeperProcesses{
			HelperConfig: nvidia.HelperConfig{Binary: s.config.Helper}, Dir: keeper.Home(s.config.KeptDir()),
		}
		return nvidia.NewSplitEngine(driver, s.mover, keepers, controldir.Path(c.bundle), c.id)
	case !s.config.Driver.CustomStorage:
		return driver
	}
	// If it is not known in time, the first checkpoint takes longer.
	if text, err := os.ReadFile(kernelDriver); err == nil && nvidia.HasStorage(strings.TrimSpace(string(text))) {
		s.mover.Warm(ctx)
	}
	return nvidia.NewStorageEngine(driver, s.mover, c.id)
}
