// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
)

// uuidPair says which device takes another's place.
type uuidPair struct{ from, to [16]byte }

// parsePairs turns a map of UUIDs as NVML writes them into the driver's pairs,
// in a fixed order.
func parsePairs(devices gpuplugin.DeviceMap) ([]uuidPair, error) {
	pairs := make([]uuidPair, 0, len(devices))
	for _, from := range slices.Sorted(maps.Keys(devices)) {
		f, err := parseUUID(from)
		if err != nil {
			return nil, err
		}
		t, err := parseUUID(devices[from])
		if err != nil {
			return nil, err
		}
		pairs = append(pairs, uuidPair{f, t})
	}
	return pairs, nil
}

func parseUUID(s string) (uuid [16]byte, err error) {
	raw, err := hex.DecodeString(strings.ReplaceAll(strings.TrimPrefix(s, "GPU-"), "-", ""))
	if err != nil || len(raw) != len(uuid) || !strings.HasPrefix(s, "GPU-") {
		return uuid, fmt.Errorf("%q is not the UUID of a GPU", s)
	}
	return [16]byte(raw), nil
}
