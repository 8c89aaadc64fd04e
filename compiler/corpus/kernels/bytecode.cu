// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

// A machine with a stack: a jump over a table for each of its instructions.
KERNEL bytecode(const u8 *code, const u32 *in, u32 *out, u32 length, u32 n) {
	u32 i = global_thread();
	if (i >= n)
		return;
	u32 stack[8], sp = 0, a = in[i], steps = 0;
	for (u32 j = 0; j < 8; j++)
		stack[j] = 0;
	u32 pc = a % length;
	while (steps < 200) {
		u32 op = code[pc];
		pc = (pc + 1) % length;
		steps++;
		u32 &top = stack[sp];
		switch (op % 10) {
		case 0: sp = (sp + 1) % 8, stack[sp] = a; break;
		case 1: a += top; break;
		case 2: a ^= top << 3; break;
		case 3: sp = (sp + 7) % 8; break;
		case 4: top = a * 2654435761u; break;
		case 5: pc = a & 1 ? (pc + op) % length : pc; break;
		case 6: a = rotl(a, 5); break;
		case 7: top -= a; break;
		case 8:
			if (a % 16 == 3)
				steps += 50;
			break;
		case 9: a = a * 3 + sp; break;
		}
	}
	out[i] = a + stack[sp] + steps;
}
