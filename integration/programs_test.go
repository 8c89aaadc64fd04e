// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"context"
	"testing"
)

// ctr runs ctr, which has to succeed, and returns what it wrote.
func (d *daemon) ctr(ctx context.Context, t *testing.T, args ...string) string {
	t.Helper()
	out, err := d.Ctr(ctx, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// nerdctl runs nerdctl, which has to succeed, and returns what it wrote.
func (d *daemon) nerdctl(ctx context.Context, t *testing.T, args ...string) string {
	t.Helper()
	out, err := d.Nerdctl(ctx, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
