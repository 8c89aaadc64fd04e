// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Package config reads the host's configuration file, which has the defaults
// for what a container's annotations can ask for. A host without the file has
// the defaults below. docs/formats.md describes it.
package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/pelletier/go-toml/v2"
)

const (
	// Path is the configuration file.
	Path = "/etc/hetgpu/config.toml"
	// Env names another one; containerd passes its environment on to shims.
	Env = "HETGPU_CONFIG"
)

// Config is the configuration of a host.
type Config struct {
	// Helper is the device helper's program: a path, or a name that is looked
	// up beside our own program and in PATH.
	Helper string `toml:"helper"`
	// LogDir is where the logs of failed dumps and restores are kept.
	LogDir string `toml:"log_dir"`
	// StateDir keeps, until the next boot, what was found out about CRIU, and the
	// sockets of keepers.
	StateDir string `toml:"state_dir"`
	// Timeout bounds a checkpoint and a restore, each.
	Timeout Duration `toml:"timeout"`
	CRIU    CRIU     `toml:"criu"`
	Driver  Driver   `toml:"driver"`
	Split   Split    `toml:"split"`
	Restore Restore  `toml:"restore"`
	// Encryption is of device memory in a snapshot's files.
	Encryption Encryption `toml:"encryption"`
}

// Encryption is about device memory in files.
type Encryption struct {
	// KeyFile has the key; "" for no encryption.
	KeyFile string `toml:"key_file"`
	// AllowPlain lets device memory be saved that no file of ours is for, so that
	// CRIU writes it as it is.
	AllowPlain bool `toml:"allow_plain"`
}

// Restore is about snapshots that a container names.
type Restore struct {
	// Dirs are the directories that they are looked for in, in this order.
	Dirs []string `toml:"dirs"`
}

// KeptDir is where the processes listen that keep device memory.
func (c Config) KeptDir() string { return filepath.Join(c.StateDir, "kept") }

// Driver is about the driver engine.
type Driver struct {
	// CustomStorage has device memory go to files of its own where the driver can
	// show it (615 and newer).
	CustomStorage bool `toml:"custom_storage"`
}

// Split is about the split engine.
type Split struct {
	// Enabled has containers that choose no engine use it, where they can.
	Enabled bool `toml:"enabled"`
	// LibraryDir is the directory of libhetcuda; "" for lib/hetgpu beside the
	// directory of our own program.
	LibraryDir string `toml:"library_dir"`
	// PreloadDir is a directory of libraries that the containers' programs are to
	// load besides, "" for none.
	PreloadDir string `toml:"preload_dir"`
	// Userfaultfd gives containers with libhetcuda the host's /dev/userfaultfd.
	Userfaultfd bool `toml:"userfaultfd"`
}

// CRIU is about the CRIU program.
type CRIU struct {
	// Path is the program, "" for the first of: ours below /opt/hetgpu, PATH.
	Path string `toml:"path"`
	// LogLevel is CRIU's verbosity, 1 to 4; 0 for the one that runc asks for.
	LogLevel int `toml:"log_level"`
}

// Duration is a time.Duration that is written as in "10m".
type Duration time.Duration

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err == nil && v <= 0 {
		err = fmt.Errorf("duration %q is not positive", text)
	}
	*d = Duration(v)
	return err
}

// Default is the configuration of a host without a file.
func Default() Config {
	return Config{
		Helper:   "hetgpu-gpu",
		LogDir:   "/var/log/hetgpu",
		StateDir: "/run/hetgpu",
		Timeout:  Duration(10 * time.Minute),
		Split:    Split{Enabled: true, Userfaultfd: true},
		Restore:  Restore{Dirs: []string{"/var/lib/hetgpu/snapshots", "/var/lib/kubelet/checkpoints"}},
		Driver:   Driver{CustomStorage: true},
	}
}

// Load reads the file that [Env] names or, without it, [Path]; only the latter
// may be missing. A key that it does not know is an error: it is a typing error.
func Load() (Config, error) {
	name := os.Getenv(Env)
	if name == "" {
		name = Path
	}
	return load(name, name == Path)
}

func load(name string, mayMiss bool) (Config, error) {
	c := Default()
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) && mayMiss {
		return c, nil
	}
	if err != nil {
		return c, fmt.Errorf("configuration: %w", err)
	}
	defer f.Close()
	if err := toml.NewDecoder(f).DisallowUnknownFields().Decode(&c); err != nil {
		if strict, ok := errors.AsType[*toml.StrictMissingError](err); ok {
			return c, fmt.Errorf("configuration %s: unknown key:\n%s", name, strict.String())
		}
		return c, fmt.Errorf("configuration %s: %w", name, err)
	}
	for key, path := range map[string]string{
		"split.library_dir": c.Split.LibraryDir, "split.preload_dir": c.Split.PreloadDir, "encryption.key_file": c.Encryption.KeyFile,
	} {
		if path != "" && !filepath.IsAbs(path) {
			return c, fmt.Errorf("configuration %s: %s is %q, want an absolute path", name, key, path)
		}
	}
	for _, dir := range c.Restore.Dirs {
		if !filepath.IsAbs(dir) {
			return c, fmt.Errorf("configuration %s: restore.dirs has %q, want absolute paths", name, dir)
		}
	}
	if c.CRIU.LogLevel < 0 || c.CRIU.LogLevel > 4 {
		return c, fmt.Errorf("configuration %s: criu.log_level is %d, want 0 to 4", name, c.CRIU.LogLevel)
	}
	return c, nil
}
