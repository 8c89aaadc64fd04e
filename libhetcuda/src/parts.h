// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Ranges that are there in parts: managed memory that was placed over memory of the
// driver's (pages.h), which has it at any address, beside memory that is not managed.
//
// The driver keeps such addresses from the CPU by a mapping that nobody may touch.
// Only pages of that are replaced, and when the last part of a page goes, it is put back.
//
// Lock of all of these: that of pages.h, held.
#ifndef HETCUDA_PARTS_H
#define HETCUDA_PARTS_H

#include "pages.h"

enum { PAGE = 4096 };

// Something that was placed, of whatever size, and what is answered for it.
struct placed {
	CUdeviceptr address;
	size_t size;
	uint64_t id;
	bool sync;
};

// What of it is in one range.
struct part {
	struct part *next;
	CUdeviceptr address;
	size_t size;
	struct placed *whole;
};

// place makes memory of a context managed that the driver has made there, and that
// only this context uses: all of it is DEVICE's. unplace undoes that; if the context is
// still there, what the CPU has written is the device's then.
CUresult place(CUcontext context, CUdevice device, struct placed *p);
void unplace(struct placed *p, bool there);

// part_find returns the part that has an address, or NULL.
struct part *part_find(const struct range *r, CUdeviceptr address);

// pages_there tells whether the CPU's page at an address of a range is there.
bool pages_there(const struct range *r, CUdeviceptr address);

// next_there finds the next bytes of a range, at offset *at or behind it and before end,
// that are there, in whole units; false if there are none. With units of one byte they are
// of one part. Those of a range that is not placed all are there.
bool next_there(const struct range *r, size_t *at, size_t end, size_t unit, size_t *length);

// For all runs of n bytes at offsets `at` that are there: variables' own, or whole pages.
#define THERE(r, at, n, from, to, unit) for (size_t at = (from), n; next_there(r, &at, to, unit, &n); at += n)
#define BYTES_THERE(r, at, n, from, to) THERE (r, at, n, from, to, 1)
#define PAGES_THERE(r, at, n, from, to) THERE (r, at, n, from, to, PAGE)

#endif
