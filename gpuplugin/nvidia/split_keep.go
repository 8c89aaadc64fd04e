// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package nvidia

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/keeper"
)

// bootID changes with each boot of the host (random(4)).
const bootID = "/proc/sys/kernel/random/boot_id"

// Keep leaves what is parked to a process that keeps it where it is, for the
// snapshot in dir. The parcels stay, and the process ends with this one, or by
// Forget, until Confirm.
func (s *SplitEngine) Keep(ctx context.Context, dir string, procs []gpuplugin.Process) (gpuplugin.Kept, error) {
	boot, err := thisBoot()
	if err != nil {
		return gpuplugin.Kept{}, err
	}
	started, err := s.keepers.Start(ctx, keeper.Label{Container: s.name, Dir: dir})
	if err != nil {
		return gpuplugin.Kept{}, err
	}
	kept, err := s.mover.Keep(ctx, KeepRequest{Home: s.keepers.Home(), Keeper: started.ID(), Parcels: s.parcelsOf(procs)})
	if err != nil {
		return gpuplugin.Kept{}, errors.Join(err, started.Close())
	}
	s.mu.Lock()
	s.keeper = started
	s.mu.Unlock()
	k := gpuplugin.Kept{Boot: boot, Keeper: started.ID(), Digest: kept.Digest}
	for _, bytes := range kept.Bytes {
		k.Bytes += bytes
	}
	return k, nil
}

// Confirm says that the snapshot of what Keep left is complete. On error it may
// not be kept.
func (s *SplitEngine) Confirm(ctx context.Context) error {
	started := s.started()
	if started == nil {
		return errors.New("there is no keeper")
	}
	return started.Confirm(ctx)
}

// Forget ends what Keep began, confirmed or not.
func (s *SplitEngine) Forget(ctx context.Context) error {
	started := s.started()
	if started == nil {
		return nil
	}
	err := started.Drop(ctx, "its checkpoint failed")
	if errors.Is(err, gpuplugin.ErrNotKept) {
		return nil
	}
	return err
}

func (s *SplitEngine) started() Keeper {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keeper
}

// Fetch takes what is kept back, for processes that are yet to be restored
// (known by their Key alone), and returns how much there is on each device. The
// keeper has it until Resume gives it to them.
func (s *SplitEngine) Fetch(ctx context.Context, kept gpuplugin.Kept, procs []gpuplugin.Process) (map[string]uint64, error) {
	boot, err := thisBoot()
	if err != nil {
		return nil, err
	}
	if boot != kept.Boot {
		return nil, fmt.Errorf("it was left on the GPUs of another host, or of this one before it was booted (boot %s, and this is %s): %w", kept.Boot, boot, gpuplugin.ErrNotKept)
	}
	req := FetchRequest{
		KeepRequest: KeepRequest{Home: s.keepers.Home(), Keeper: kept.Keeper, Parcels: s.parcelsOf(procs)},
		Digest:      kept.Digest, By: "the restore of container " + s.name,
	}
	s.mu.Lock()
	for _, parcel := range req.Parcels {
		s.parcels[parcel] = true
	}
	s.mu.Unlock()
	fetched, err := s.mover.Fetch(ctx, req)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.lender = kept.Keeper
	s.mu.Unlock()
	return fetched.Bytes, nil
}

// borrows tells whether memory is a keeper's until the processes go on.
func (s *SplitEngine) borrows() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lender != ""
}

// spend has the keeper let go of what the processes, which are about to go on,
// were given. What only the driver saved goes on before.
func (s *SplitEngine) spend(ctx context.Context, procs []gpuplugin.Process) error {
	s.mu.Lock()
	lender := s.lender
	s.mu.Unlock()
	if lender == "" {
		return nil
	}
	// What may fail comes first: there is no way back then.
	if errs := each(ctx, procs, "resume", s.driver.undoOne); len(errs) > 0 {
		return errors.Join(errs...)
	}
	ctx, cancel := s.driver.outlive(ctx, s.driver.cfg.stepTimeout)
	defer cancel()
	if err := s.mover.Spend(ctx, lender, "container "+s.name+" was restored with it"); err != nil {
		return fmt.Errorf("take over the device memory: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lender = ""
	return nil
}

// closeKeeper ends the connection to a keeper that was started here: one that
// was not confirmed ends too.
func (s *SplitEngine) closeKeeper() error {
	s.mu.Lock()
	started := s.keeper
	s.keeper, s.lender = nil, ""
	s.mu.Unlock()
	if started == nil {
		return nil
	}
	return started.Close()
}

func thisBoot() (string, error) {
	text, err := os.ReadFile(bootID)
	if err != nil {
		return "", fmt.Errorf("which boot this is can't be told: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}
