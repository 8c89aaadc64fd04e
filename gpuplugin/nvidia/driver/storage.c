/* SPDX-FileCopyrightText: The hetGPU authors
 * SPDX-License-Identifier: Apache-2.0
 */
#include "storage.h"

typedef int set_current_fn(void *);
typedef int pid_args_fn(int, void *);
typedef int complete_fn(void *);
typedef int stream_context_fn(void *, void **);

static int make_current(struct hg_ctx c)
{
	return ((set_current_fn *)c.set_current)(c.context);
}

int hg_storage_checkpoint(struct hg_ctx c, void *fn, int pid, struct cu_storage **out)
{
	struct cu_checkpoint_storage_args args = {.out = out};
	int r = make_current(c);

	*out = NULL;
	return r != 0 ? r : ((pid_args_fn *)fn)(pid, &args);
}

int hg_storage_restore(struct hg_ctx c, void *fn, int pid, const struct cu_gpu_pair *pairs, unsigned int count, struct cu_storage **out)
{
	struct cu_restore_storage_args args = {.pairs = count > 0 ? pairs : NULL, .count = count, .out = out};
	int r = make_current(c);

	*out = NULL;
	return r != 0 ? r : ((pid_args_fn *)fn)(pid, &args);
}

int hg_storage_complete(struct hg_ctx c, void *fn, void *handle)
{
	int r = make_current(c);

	return r != 0 ? r : ((complete_fn *)fn)(handle);
}

int hg_stream_context(void *fn, void *stream, void **context)
{
	return ((stream_context_fn *)fn)(stream, context);
}
