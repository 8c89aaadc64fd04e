// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Seeing that the CPU touches managed memory. By userfaultfd where we get one:
// then system calls that are given an address in managed memory see nothing of
// it. Else by protecting the pages and handling SIGSEGV: then a system call that
// is given what is DEVICE's returns EFAULT.
#ifndef HETCUDA_WATCH_H
#define HETCUDA_WATCH_H

#include "pages.h"

// HETCUDA_MANAGED_FAULTS: "uffd", "signal", or what there is.
#define HETCUDA_FAULTS_ENV "HETCUDA_MANAGED_FAULTS"

// Lock of all of these: held.

// watch_start chooses the way, once; false if there is none.
bool watch_start(void);

// watch_unit is how many granules change together: the kernel may have only so
// many pieces of mappings, which is what mprotect cuts them into.
size_t watch_unit(void);

// watch_tracks_writes tells whether CLEAN granules can be told from DIRTY ones.
bool watch_tracks_writes(void);

// watch_add begins to watch pages of a range that are DEVICE's; watch_remove ends.
bool watch_add(CUdeviceptr address, size_t size);
void watch_remove(CUdeviceptr address, size_t size);

// watch_close keeps the CPU from touching granules; watch_open lets it. The
// pages are there.
void watch_close(struct range *r, size_t from, size_t to);
bool watch_open(struct range *r, size_t from, size_t to, bool write);
// watch_allow lets it write what it could read.
void watch_allow(struct range *r, size_t from, size_t to);

// watch_wake lets a thread try again that has touched an address.
void watch_wake(CUdeviceptr address);

// watch_check makes sure that faults come to us, before work is submitted.
void watch_check(void);

// watch_suspend ends the watching of what is all DEVICE's, with nothing left
// open that CRIU can't dump; a thread that touches it waits for watch_resume.
void watch_suspend(void);
void watch_resume(void);

// In the child of a fork.
void watch_forked(void);

#endif
