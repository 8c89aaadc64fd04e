/*
 * SPDX-FileCopyrightText: The hetGPU authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What the control thread asks of the memory that we own. All of it is called
 * by that one thread. From quiesce to take_finish the gate is closed: no thread
 * of the program is in an override or in the driver, so no lock that an
 * override takes can be held (except by a call that came from a callback of
 * the driver's; such a thread keeps the gate from being complete).
 *
 * The driver is called through REAL() only, never through an exported name:
 * those wait at the gate.
 *
 * Results: 0, a CUresult (positive), or an errno (negative). With anything but
 * 0 a line for people may be written to `text`, which has HETCUDA_TEXT bytes
 * and is empty before the call.
 */
#ifndef HETCUDA_MEMORY_H
#define HETCUDA_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "hetcuda_control.h"

/*
 * After the process's first successful cuInit, in the thread that called it
 * (still inside of that call, so not during a hold), once.
 */
void hetcuda_memory_start(void);

/*
 * How much there is, parked or not. Answered from our own tables: the driver
 * may be locked or checkpointed, when every call of it would wait.
 */
void hetcuda_memory_count(uint32_t *chunks, uint64_t *bytes);

/*
 * What there is, and what the driver keeps beside it, in a line for people of
 * at most HETCUDA_TEXT bytes. Like count, it waits for nothing.
 */
void hetcuda_memory_describe(char *text);

/*
 * Whether all GPU work has come to its end: 0, -ETIMEDOUT if it has not after
 * timeout_ms, -EBUSY if a stream is being captured and nobody may ask, another
 * errno, or a CUresult. What it waits for is what was submitted before the last
 * call with `anew`. Also while the program runs.
 */
int hetcuda_memory_idle(bool anew, uint32_t timeout_ms);

/*
 * Waits until no GPU work is running or queued in any context of the process,
 * -ETIMEDOUT if that takes longer. Afterwards the chunks are numbered from 0 to
 * count - 1, and stay so until commit or abandon.
 */
int hetcuda_memory_quiesce(uint32_t timeout_ms, uint32_t *count, char *text);

/*
 * A descriptor of chunk i, with FD_CLOEXEC; the caller closes it. -1 for one that
 * another process has made. Called for each i in turn. Nothing has changed when it
 * returns.
 */
int hetcuda_memory_export(uint32_t i, struct hetcuda_chunk *chunk, int *fd, char *text);

/*
 * Marks the chunks that other processes have made, between export and commit or
 * abandon; with 0, or after an error, what was there is back.
 */
int hetcuda_memory_mark(uint64_t nonce, char *text);

/*
 * Unmaps and releases every chunk that was exported; the addresses stay
 * reserved. All or nothing: with an error everything is as before. Where that
 * can't be, all is parked, and the peer has what is missing.
 */
int hetcuda_memory_commit(char *text);

/*
 * How many bytes the last quiesce gave back to the devices that had been kept
 * for the program's next allocations: they are beside the chunks.
 */
uint64_t hetcuda_memory_trimmed(void);

/* No commit will follow: the exports are forgotten, the program goes on. */
void hetcuda_memory_abandon(void);

/*
 * Parked: whether the process has to make its memory itself, since it can use none that
 * others have made.
 */
bool hetcuda_memory_moved(void);

/*
 * Makes memory for a parked chunk that was not taken yet, and that no other process has made;
 * export_made is as export, of the last one, with i 0. Before take_finish.
 */
int hetcuda_memory_make(uint64_t id, char *text);
int hetcuda_memory_export_made(uint32_t i, struct hetcuda_chunk *chunk, int *fd, char *text);

/*
 * Imports one parked chunk and maps it where it was (GPU work may not see it
 * before take_finish), or, as its flags have it, memory of the process's own with
 * the same contents, if there is room; or maps what make has made. The caller closes fd. The id, size and device
 * must be those of a parked chunk that was not taken yet, otherwise
 * -EINVAL: what is in `chunk` came from another process.
 */
int hetcuda_memory_take(const struct hetcuda_chunk *chunk, int fd, char *text);

/*
 * 0 when every parked chunk was taken: the memory is the program's again. Also
 * 0 if chunks are to come that other processes have made: so many are *missing.
 * With an error (-ENOENT: others are missing) take_undo follows.
 */
int hetcuda_memory_take_finish(uint32_t *missing, char *text);

/*
 * The taking failed: what was taken since the last take_finish that succeeded is let
 * go of again, or `all` that was taken or made; it stays parked.
 */
void hetcuda_memory_take_undo(bool all);

/*
 * Numbers the chunks that this process has made and other processes may have, and
 * that are there and can be exported, from 0 to count - 1. Then export_shared for
 * each in turn, as export. After quiesce, which makes room for the numbers.
 */
int hetcuda_memory_share(uint32_t *count, char *text);
int hetcuda_memory_export_shared(uint32_t i, struct hetcuda_chunk *chunk, int *fd, char *text);

/*
 * After take_finish: makes what was taken as it was the process's own, as far as there
 * is room. *left is how many bytes are not, and text says why. An error only if some
 * of it is not where the program looks for it.
 */
int hetcuda_memory_own(uint64_t *left, char *text);

/*
 * Held, and not parked: 0 if all memory is where the program looks for it. What a driver that
 * failed has left unmapped is mapped; if that fails again, text says what, and threads that
 * touch managed memory wait until it is done, or abandon. The program would be lost if it
 * went on, its memory is not.
 */
int hetcuda_memory_whole(char *text);

/*
 * In the child of a fork, in its only thread, before anything else runs.
 * `initialized`: the parent had initialized CUDA. Then no override is ever
 * called in the child again (the table has the driver's functions, which
 * return CUDA_ERROR_NOT_INITIALIZED), and nothing of the parent's may be freed
 * through the driver. Otherwise locks are to be made anew.
 */
void hetcuda_memory_forked(int initialized);

#endif
