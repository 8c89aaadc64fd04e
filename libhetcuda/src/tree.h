// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// An ordered set of nodes that live inside of what they order, so that an
// operation allocates nothing and can't fail: a treap. Its priorities come from
// a generator of its own: what a program does decides the order of the keys, and
// so must not decide the shape of the tree.
//
// A key is a pair; (address, 0) orders by address, (size, address) by size.
#ifndef HETCUDA_TREE_H
#define HETCUDA_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tree_node {
	struct tree_node *parent, *left, *right;
	uint64_t major, minor;
	uint32_t priority;
};

struct tree {
	struct tree_node *root;
	size_t count;
	uint32_t random;
};

// tree_insert adds a node under a key that no other node has.
void tree_insert(struct tree *t, struct tree_node *n, uint64_t major, uint64_t minor);
void tree_remove(struct tree *t, struct tree_node *n);

// tree_floor is the last node at or before a key, tree_ceiling the first at or
// after it; NULL if there is none.
struct tree_node *tree_floor(const struct tree *t, uint64_t major, uint64_t minor);
struct tree_node *tree_ceiling(const struct tree *t, uint64_t major, uint64_t minor);

struct tree_node *tree_first(const struct tree *t);
struct tree_node *tree_next(const struct tree_node *n);
struct tree_node *tree_previous(const struct tree_node *n);

// OF is what a node is inside of; NULL for NULL.
#define OF(node, type, member) ((type *)of_node((node), offsetof(type, member)))

static inline void *of_node(struct tree_node *n, size_t offset)
{
	return n ? (char *)n - offset : NULL;
}

#endif
