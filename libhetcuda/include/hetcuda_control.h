/*
 * SPDX-FileCopyrightText: The hetGPU authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * How a process outside of a container asks libhetcuda inside of it to let go
 * of its device memory and to take it back: the messages, and what they mean.
 * The other side is gpuplugin/nvidia/hetcuda, in Go.
 *
 * The socket. A process that has initialized CUDA listens on a socket
 * (AF_UNIX, SOCK_SEQPACKET) "hetcuda.<pid>" in the directory that the
 * environment variable HETCUDA_CONTROL names; without the variable the library
 * forwards and does nothing else. <pid> is the process's own idea of its PID;
 * who is behind a socket SO_PEERCRED tells, not the name. Only a peer that is
 * root, or from outside of the process's PID namespace (its PID there is 0), is
 * listened to, and one connection at a time.
 *
 * One packet is one message, in the byte order and alignment of x86-64. Every
 * request gets one reply. Descriptors travel as SCM_RIGHTS, one a chunk, in the
 * order of the chunks.
 *
 *     HELLO    what the library is, and in which state; the text says what of the
 *              memory is the driver's own, for people
 *     HOLD     from now on every CUDA call waits. Answered when no thread is
 *              inside of the driver any more; if that takes longer than
 *              timeout_ms, everything goes on and the reply is -EAGAIN
 *     PARK     held: GPU work is waited for, every chunk is exported but those that
 *              another process has made. The reply has their number; packets of at
 *              most HETCUDA_BATCH chunks follow, each with the descriptors of those
 *              that have one. Nothing has changed until
 *     COMMIT   the chunks are unmapped and released; their addresses stay
 *              reserved. What the peer holds is then all there is. The reply's
 *              count is how many MiB went back to the devices beside the chunks,
 *              which were kept for the program's next allocations
 *     MARK     after PARK: the chunks that other processes have made are marked;
 *              timeout_ms is the lower half of the nonce and `count` the upper one.
 *              With 0, what was there is put back; so do COMMIT and the end
 *     UNPARK   parked: `count` chunks follow, each with a descriptor, of those
 *              that were parked, in any order. They are mapped again where they
 *              were; what is not imported is copied into memory that the process
 *              makes, if there is room and its flags don't say otherwise. Chunks
 *              that another process has made may come in a later UNPARK: the
 *              reply's count is how many are to come. One that is refused takes
 *              nothing, and leaves what those before it on this connection took
 *     MAKE     parked: the process makes memory for one of its chunks, before the UNPARK
 *              that takes it, and the reply is followed by a packet with the chunk and a
 *              descriptor: the peer fills it. UNPARK then maps what was made, and looks at no
 *              descriptor that comes with it. timeout_ms is the lower half of the chunk's
 *              id and `count` the upper one. With 0 nothing is made: the reply's count is 1 if
 *              the driver has restored the process to other devices than it began on,
 *              where it can use no memory that others have made, and 0 if not
 *     SHARE    parked or held, after an UNPARK: the chunks that this process has
 *              made and others may have are exported, as in PARK; not those for
 *              which there was no room
 *     OWN      held, after the last UNPARK: what was taken as it was is copied into
 *              memory that the process makes, one chunk after the other. The peer
 *              has let go of it by now, so that each makes room for the next. What
 *              other processes have too stays. The reply's count is how many MiB
 *              are left as they were; the text says why. An error is of memory that is
 *              not where the program looks for it: OWN can be tried again
 *     RELEASE  held or stepped, and not parked: calls go on. Of a program that is held
 *              the memory is where it belongs then: what a driver that failed has left
 *              unmapped is mapped, and if that can't be done, the program stays held
 *     STEP     from now on only `count` calls that give a device work may begin,
 *              in the order in which they come; the others wait, and all other
 *              calls go on. Answered at once, with a status. Another STEP puts
 *              its count in the place of what is left
 *     STATUS   stepped: answered with a status as soon as the device has done
 *              all that it was given, and at the latest after timeout_ms
 *
 * Processes whose kernels wait for one another (NCCL) can't be held one by one:
 * that which is held may be what another's kernel waits for. All of them are
 * stepped; those whose devices have come to rest are let on until the others
 * have, too; and then all are held. HOLD of a process that is stepped and can't
 * be held in time leaves it stepped, with no call left.
 *
 * Protocols. The two sides can be of different versions: a device helper lives as long
 * as the pod that it is for, and a container that starts there later has the library
 * that is installed then. HELLO says what the library speaks, and a peer that does not know
 * that asks it for nothing else.
 *     1    HELLO, HOLD, PARK, COMMIT, UNPARK, RELEASE
 *     2    STEP, STATUS
 *     3    MARK, SHARE; all of an UNPARK whose timeout_ms is 1 is AS_IS
 *     4    OWN; AS_IS and LATER, flags of a chunk. Who says AS_IS of all chunks of an UNPARK
 *          says it in both ways, and the library hears both, whatever the other side speaks
 *     5    MAKE
 * A change of what a packet means, or a request that a peer can't do without, is a
 * protocol more; one that is refused where it isn't known need not be.
 *
 * A connection that ends takes its STEP and HOLD (and a PARK without COMMIT) with it, so
 * that a peer that dies leaves a running program. What is parked stays parked,
 * with or without a connection, and through a dump and a restore by CRIU; a new
 * connection finds it so (HELLO) and can UNPARK. A peer that hangs is one that
 * has ended: after 30 s in the middle of what it sends or should read, after 10
 * minutes between two requests (time in which the program is frozen is not
 * counted), never while the program is parked.
 */
#ifndef HETCUDA_CONTROL_H
#define HETCUDA_CONTROL_H

#include <stdint.h>

#define HETCUDA_CONTROL_ENV "HETCUDA_CONTROL"
#define HETCUDA_SOCKET_PREFIX "hetcuda."
#define HETCUDA_MAGIC 0x31637468u /* "htc1" */

enum { HETCUDA_BATCH = 64, HETCUDA_TEXT = 224, HETCUDA_PROTOCOL = 5 };

enum hetcuda_op {
	HETCUDA_HELLO = 1,
	HETCUDA_HOLD = 2,
	HETCUDA_PARK = 3,
	HETCUDA_COMMIT = 4,
	HETCUDA_UNPARK = 5,
	HETCUDA_RELEASE = 6,
	HETCUDA_STEP = 7,
	HETCUDA_STATUS = 8,
	HETCUDA_MARK = 9,
	HETCUDA_SHARE = 10,
	HETCUDA_OWN = 11,
	HETCUDA_MAKE = 12,
};

enum hetcuda_state {
	HETCUDA_RUNNING = 0,
	HETCUDA_HELD = 1,
	HETCUDA_PARKED = 2, /* and held */
	HETCUDA_STEPPED = 3,
};

struct hetcuda_request {
	uint32_t magic;
	uint32_t op;
	uint32_t timeout_ms; /* HOLD, PARK, STATUS; MARK, MAKE; UNPARK: protocols */
	uint32_t count;      /* UNPARK: chunks that follow; STEP: calls; MARK, MAKE */
};

struct hetcuda_reply {
	uint32_t magic;
	uint32_t op;    /* of the request */
	int32_t status; /* 0, or a CUresult (positive), or an errno (negative) */
	uint32_t count; /* PARK, SHARE, MAKE: chunks that follow; UNPARK: to come; COMMIT, OWN: MiB */
	char text[HETCUDA_TEXT]; /* why, for people; ends with 0 */
};

/* What follows the reply to HELLO, in the same packet. */
struct hetcuda_hello {
	uint32_t state;
	int32_t pid;    /* in its own PID namespace */
	int32_t driver; /* cuDriverGetVersion of the real library */
	uint32_t chunks;
	uint64_t bytes;    /* of device memory in the chunks */
	char version[32];  /* of the library */
	char build[40];    /* its build id in hexadecimal: a restored process needs the same file */
	uint32_t protocol; /* HETCUDA_PROTOCOL; a library whose hello ends before it speaks 1 */
	uint32_t reserved;
};

enum hetcuda_device_state {
	HETCUDA_BUSY = 0,      /* has work, or may be given some */
	HETCUDA_IDLE = 1,      /* has none, and gets none before the next STEP */
	HETCUDA_CAPTURING = 2, /* a stream is being captured, so it can't be asked */
};

/* What follows the reply to STEP and STATUS, in the same packet. */
struct hetcuda_status {
	uint32_t device;  /* hetcuda_device_state */
	uint32_t inside;  /* threads inside of the driver; the reply's text says where */
	uint32_t waiting; /* threads at the gate */
	uint32_t left;    /* calls that may still begin */
	uint64_t passed;  /* calls that have, since the process ran */
};

/*
 * Memory that several processes have is a chunk of each. The driver lets only the
 * process export it that has made it, so the peer has to find out which memory an
 * imported chunk is. Nobody has to be believed for that: the process that imported
 * it writes a number that only the peer can have told it, and the peer looks for
 * it through the descriptors of the others, while all of them are held. The number
 * depends on the chunk's place in PARK's list, which is bounded, and on nothing
 * that the process can choose.
 *
 * The nonces of processes that are parked together differ in their lowest
 * HETCUDA_MARK_PLACES bits, so that each marks other words, and each chunk of a
 * process another one: 2^12 * 64 words are 2 MiB, and no device's pieces are smaller.
 */
enum { HETCUDA_MARK_PLACES = 12, HETCUDA_MARK_WORDS = 64 };

static inline uint64_t hetcuda_mark(uint64_t nonce, uint32_t place)
{
	return nonce + place * UINT64_C(0x9e3779b97f4a7c15);
}

static inline uint64_t hetcuda_mark_offset(uint64_t nonce, uint32_t place, uint64_t size)
{
	uint64_t first = (nonce & ((UINT64_C(1) << HETCUDA_MARK_PLACES) - 1)) * HETCUDA_MARK_WORDS;

	return (first + place % HETCUDA_MARK_WORDS) * sizeof(nonce) % size;
}

enum hetcuda_chunk_flags {
	HETCUDA_EXPORTED = 1, /* another process may have it too */
	HETCUDA_IMPORTED = 2, /* another process has made it */
	/* For UNPARK, which looks at these two only. AS_IS: it is not copied, for others have the memory
	 * who did not let go of it. LATER: it is copied by OWN, for there is no room for two of everything;
	 * but what others may have is copied now, since they get it from this process. */
	HETCUDA_AS_IS = 4,
	HETCUDA_LATER = 8,
};

/* One piece of device memory. */
struct hetcuda_chunk {
	uint64_t id;      /* the process's number for it; never used twice */
	uint64_t address; /* where it is mapped, 0 for one that is not mapped anywhere */
	uint64_t size;    /* a multiple of the device's granularity */
	uint8_t device[16]; /* CUuuid */
	uint32_t flags;   /* hetcuda_chunk_flags */
	uint32_t reserved;
};

#endif
