// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Functions that give the device work. A process without managed memory pays
// nothing for it: only when the first of it is made are their entries in the
// table replaced, by trampolines that look at two words and jump on.
#ifndef HETCUDA_SUBMIT_H
#define HETCUDA_SUBMIT_H

#include <stdbool.h>

// submit_watch replaces the entries, once; submit_forked puts them back.
void submit_watch(void);
void submit_forked(void);

// submit_under_way tells whether a thread is in one of the functions and may
// already have looked (others wait or will wait for the lock of pages.h, which
// the caller holds).
bool submit_under_way(void);

// For the trampolines.
void hetcuda_before_work(void);

#endif
