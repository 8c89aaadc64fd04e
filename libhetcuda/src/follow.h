// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Which streams come after which, as far as the program's own events tell
// (CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES): a stream that waits for an event
// of another comes after all that the other had freed, and may have it.
//
// It is a hint. An event may get a new meaning where we don't see it (in a graph),
// so whoever goes by this has the stream wait for the mark all the same, which costs
// nothing where it comes after it anyway.
#ifndef HETCUDA_FOLLOW_H
#define HETCUDA_FOLLOW_H

#include "lane.h"

// follow_after tells whether a stream comes after a mark of another. Lock: held.
bool follow_after(const struct mark *m, const struct lane *l);

#endif
