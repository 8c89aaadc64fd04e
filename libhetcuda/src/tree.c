// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

#include "tree.h"

static uint32_t draw(struct tree *t)
{
	uint32_t x = t->random ? t->random : 0x9e3779b9u;
	x ^= x << 13;
	x ^= x >> 17;
	x ^= x << 5;
	return t->random = x;
}

static bool before(uint64_t major, uint64_t minor, const struct tree_node *n)
{
	return major != n->major ? major < n->major : minor < n->minor;
}

static bool after(uint64_t major, uint64_t minor, const struct tree_node *n)
{
	return major != n->major ? major > n->major : minor > n->minor;
}

// place is where the tree points to n.
static struct tree_node **place(struct tree *t, const struct tree_node *n)
{
	if (!n->parent)
		return &t->root;
	return n->parent->left == n ? &n->parent->left : &n->parent->right;
}

// raise turns n and its parent round, so that the parent is below n.
static void raise_node(struct tree *t, struct tree_node *n)
{
	struct tree_node *p = n->parent, *moved;
	*place(t, p) = n;
	n->parent = p->parent;
	if (p->left == n) {
		moved = n->right;
		p->left = moved;
		n->right = p;
	} else {
		moved = n->left;
		p->right = moved;
		n->left = p;
	}
	p->parent = n;
	if (moved)
		moved->parent = p;
}

void tree_insert(struct tree *t, struct tree_node *n, uint64_t major, uint64_t minor)
{
	struct tree_node *parent = NULL, **link = &t->root;
	while (*link) {
		parent = *link;
		link = before(major, minor, parent) ? &parent->left : &parent->right;
	}
	*n = (struct tree_node){.parent = parent, .major = major, .minor = minor, .priority = draw(t)};
	*link = n;
	t->count++;
	while (n->parent && n->parent->priority < n->priority)
		raise_node(t, n);
}

void tree_remove(struct tree *t, struct tree_node *n)
{
	while (n->left && n->right)
		raise_node(t, n->left->priority > n->right->priority ? n->left : n->right);
	struct tree_node *child = n->left ? n->left : n->right;
	*place(t, n) = child;
	if (child)
		child->parent = n->parent;
	n->parent = n->left = n->right = NULL;
	t->count--;
}

struct tree_node *tree_floor(const struct tree *t, uint64_t major, uint64_t minor)
{
	struct tree_node *best = NULL;
	for (struct tree_node *n = t->root; n;) {
		if (before(major, minor, n)) {
			n = n->left;
			continue;
		}
		best = n;
		n = n->right;
	}
	return best;
}

struct tree_node *tree_ceiling(const struct tree *t, uint64_t major, uint64_t minor)
{
	struct tree_node *best = NULL;
	for (struct tree_node *n = t->root; n;) {
		if (after(major, minor, n)) {
			n = n->right;
			continue;
		}
		best = n;
		n = n->left;
	}
	return best;
}

struct tree_node *tree_first(const struct tree *t)
{
	struct tree_node *n = t->root;
	while (n && n->left)
		n = n->left;
	return n;
}

struct tree_node *tree_next(const struct tree_node *n)
{
	if (n->right) {
		struct tree_node *m = n->right;
		while (m->left)
			m = m->left;
		return m;
	}
	while (n->parent && n->parent->right == n)
		n = n->parent;
	return n->parent;
}

struct tree_node *tree_previous(const struct tree_node *n)
{
	if (n->left) {
		struct tree_node *m = n->left;
		while (m->right)
			m = m->right;
		return m;
	}
	while (n->parent && n->parent->left == n)
		n = n->parent;
	return n->parent;
}
