// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Faults on demand: the file "faults" of the machine, read again at every call
// of the checkpoint API in the process that calls. Its syntax is in README.md.
#ifndef STANDIN_FAULTS_H
#define STANDIN_FAULTS_H

#include <sys/types.h>

#include "machine.h"

enum fault_when { FAULT_NONE, FAULT_BEFORE, FAULT_DURING, FAULT_AFTER };

struct fault {
	enum fault_when when; // FAULT_NONE: there is no fault
	long start;           // where its line starts in the file
	unsigned error, delay_ms;
	bool hang, crash, fail;
	char op[16];
};

// fault_find returns the first fault for a call and counts the call.
struct fault fault_find(const char *op, pid_t pid);

// fault_apply does what the fault says if this is its time. It returns the
// error to report, or 0.
int fault_apply(const struct fault *f, enum fault_when now);

// call_log appends a line to the machine's file "calls". result < 0: the call
// begins.
void call_log(const char *op, pid_t pid, int result);

#endif
