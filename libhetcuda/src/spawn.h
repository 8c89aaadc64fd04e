/*
 * SPDX-FileCopyrightText: The hetGPU authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Threads of the library's own.
 */
#ifndef HETCUDA_SPAWN_H
#define HETCUDA_SPAWN_H

/*
 * Starts a thread that nobody waits for and that takes none of the program's
 * signals: those are for the program's threads. 0, or an errno.
 */
int hetcuda_spawn(void *(*run)(void *), void *data);

/* The same, with a name that tools show. */
int hetcuda_spawn_named(void *(*run)(void *), void *data, const char *name);

#endif
