// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// The variables by which libhetcuda, and the linker for it, are told.
const (
	EnvLibraryPath = "LD_LIBRARY_PATH"
	EnvControl     = "HETCUDA_CONTROL"
	EnvReal        = "HETCUDA_REAL"
	EnvVariables   = "HETCUDA_MANAGED_VARIABLES"
	envPreload     = "LD_PRELOAD"
)

// Environment is how a process of a container is told of what was injected: the
// first one, and each that enters by exec.
type Environment struct {
	// preload are the user's own libraries, real is the driver's, "" where it
	// is not known. All are paths in the container.
	preload []string
	real    string
	// variables says to whom __managed__ variables are left, "" for libhetcuda.
	variables string
}

// AddToProcess adds the environment to a process (specs.Process as JSON), in
// which all else stays byte for byte.
func (e Environment) AddToProcess(document []byte) ([]byte, error) {
	var p Process
	if err := json.Unmarshal(document, &p); err != nil {
		return nil, fmt.Errorf("read the process's spec: %w", err)
	}
	return edit{[]string{"env"}, e.addTo(p.Env)}.apply(document)
}

// addTo returns the variables with ours among them. What is there stays.
func (e Environment) addTo(env []string) []string {
	env = prepend(slices.Clone(env), envPreload, e.preload)
	env = prepend(env, EnvLibraryPath, []string{InjectedLibrary})
	env = setEnv(env, EnvControl, InjectedControl)
	if e.real != "" {
		env = setEnv(env, EnvReal, e.real)
	}
	if _, chosen := getEnv(env, EnvVariables); e.variables != "" && !chosen {
		env = setEnv(env, EnvVariables, e.variables)
	}
	return env
}

// prepend puts entries before those of a list, in which they are once. What
// else is in it stays, also what is empty and means the working directory.
func prepend(env []string, name string, entries []string) []string {
	list := slices.Clone(entries)
	if old, _ := getEnv(env, name); old != "" {
		separator := ":"
		if name == envPreload && !strings.Contains(old, separator) {
			separator = " " // the linker takes both
		}
		for entry := range strings.SplitSeq(old, separator) {
			if !slices.Contains(entries, entry) {
				list = append(list, entry)
			}
		}
	}
	if len(list) == 0 {
		return env
	}
	return setEnv(env, name, strings.Join(list, ":"))
}

// getEnv finds the value that counts where there are several: the last.
func getEnv(env []string, name string) (string, bool) {
	for _, kv := range slices.Backward(env) {
		if value, ok := strings.CutPrefix(kv, name+"="); ok {
			return value, true
		}
	}
	return "", false
}

// setEnv leaves one value, where the first was.
func setEnv(env []string, name, value string) []string {
	kv := name + "=" + value
	is := func(kv string) bool { return strings.HasPrefix(kv, name+"=") }
	i := slices.IndexFunc(env, is)
	if i < 0 {
		return append(env, kv)
	}
	env[i] = kv
	return slices.Concat(env[:i+1], slices.DeleteFunc(slices.Clone(env[i+1:]), is))
}
