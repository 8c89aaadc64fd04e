// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// A program of which each line counts writes it at once, and says where it crashed.
#pragma once
#include <execinfo.h>
#include <signal.h>
#include <stdio.h>

static void crashed(int number)
{
	void *frames[32];
	printf("crashed by signal %d\n", number);
	fflush(stdout);
	backtrace_symbols_fd(frames, backtrace(frames, 32), 1);
	raise(number); // SA_RESETHAND: it ends by it
}

static inline void tell_crashes(void)
{
	struct sigaction action;
	void *first[1];
	setvbuf(stdout, NULL, _IOLBF, 0);
	backtrace(first, 1); // loads what it needs
	sigemptyset(&action.sa_mask);
	action.sa_flags = SA_RESETHAND | SA_NODEFER;
	action.sa_handler = crashed;
	sigaction(SIGSEGV, &action, NULL);
	sigaction(SIGBUS, &action, NULL);
	sigaction(SIGABRT, &action, NULL);
}
