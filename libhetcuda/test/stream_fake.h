// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Streams, events and pools of the driver of software (memory_fake.h). A stream does
// nothing until it is told to: by the test, a step at a time, or by a thread that
// picks streams at random. So whatever the streams are not ordered in will happen in
// every order.
#ifndef HETCUDA_TEST_STREAM_FAKE_H
#define HETCUDA_TEST_STREAM_FAKE_H

#include "memory_fake.h"

struct streams_fake {
	_Atomic unsigned events;  // that exist
	_Atomic unsigned created; // ever
	_Atomic unsigned waits;   // of cuStreamWaitEvent
	_Atomic unsigned served;  // allocations of the driver's own pools
	_Atomic unsigned freed;   // by the driver
	CUstream capturing;       // this stream is
	bool spoilt;              // by a call of a thread that was not relaxed
	const char *fail;         // the function whose next call fails; its beginning
	bool lasting;             // so do all that come after
	CUresult with;
};

extern struct streams_fake streams_fake;

// streams_start adds all of it to fake_start's driver.
void streams_start(void);

// stream_work queues a call; stream_step does the next thing in a stream, false if
// there is none that can be done; stream_drain does all of all streams.
void stream_work(CUstream stream, bool own, void (*call)(void *), void *argument);
bool stream_step(CUstream stream);
void streams_drain(void);

// streams_forget ends the streams of threads that have ended: of all but this one.
void streams_forget(void);

// streams_go has a thread do it, streams_halt ends that.
void streams_go(unsigned seed);
void streams_halt(void);

#endif
