// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

// Connected components: each vertex takes the smallest label around it; labels are
// followed to their end. Threads go through loops of different lengths.
KERNEL components(const u32 *a, const u32 *b, u32 *label, u32 *changed, u32 edges) {
	u32 e = global_thread();
	if (e >= edges)
		return;
	u32 x = a[e], y = b[e];
	while (label[x] != x)
		x = label[x];
	while (label[y] != y)
		y = label[y];
	if (x == y)
		return;
	if (x < y)
		swap(x, y);
	atomicMin(&label[x], y);
	*changed = 1;
}

KERNEL components_flatten(u32 *label, u32 n) {
	u32 v = global_thread();
	if (v >= n)
		return;
	u32 root = v;
	while (label[root] != root)
		root = label[root];
	label[v] = root;
}
