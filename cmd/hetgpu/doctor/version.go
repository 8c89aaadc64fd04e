// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"regexp"
	"strconv"
)

// version is the first three numbers of a program's version.
type version [3]int

var versionNumbers = regexp.MustCompile(`(\d{1,6})\.(\d{1,6})(?:\.(\d{1,6}))?`)

// parseVersion reads the first version in a text.
func parseVersion(text string) (version, error) {
	m := versionNumbers.FindStringSubmatch(text)
	if m == nil {
		return version{}, fmt.Errorf("no version in %q", text)
	}
	var v version
	for i, s := range m[1:] {
		if s != "" {
			// Six digits at most: it can't overflow.
			v[i], _ = strconv.Atoi(s)
		}
	}
	return v, nil
}

func (v version) less(w version) bool {
	for i := range v {
		if v[i] != w[i] {
			return v[i] < w[i]
		}
	}
	return false
}

func (v version) String() string { return fmt.Sprintf("%d.%d.%d", v[0], v[1], v[2]) }
