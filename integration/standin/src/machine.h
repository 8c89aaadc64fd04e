// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// A machine is a directory (environment: HETGPU_STANDIN, otherwise
// /run/hetgpu-standin), the same in every container that is to see it:
//
//     machine         what the machine is (see README.md); written by tests
//     faults          what goes wrong (see faults.h); written by tests
//     calls           every call of the checkpoint API, for tests to read
//     owners/NAME/    the device memory of one process, a file per allocation
//     memory/         memory that processes can share, a file each
//
// A process owns its directory below owners/ for as long as it holds the lock
// on the file "lock" in it: the kernel lets go of it when the process dies,
// whatever the way, as the real driver frees memory when its files are closed.
// What an owner that is gone has left counts for nothing and is removed.
//
// A file below memory/ is held by every process that has a handle or a mapping
// of it and by every descriptor that was exported: each has a shared lock on
// it. One that nobody holds is gone. For as long as the process that made it
// holds it, a link to it is among the files of that owner.
#ifndef STANDIN_MACHINE_H
#define STANDIN_MACHINE_H

#include "util.h"

enum {
	MAX_GPUS = 16,
	PATH_SIZE = 512,
	OWNER_SIZE = 48,
	UUID_SIZE = 48,
	MEMORY_SIZE = UUID_SIZE + 20,
};

struct gpu {
	char uuid[UUID_SIZE];
	unsigned char id[16]; // uuid in binary
	char name[96];
	char pci[32];
	uint64_t memory;
	uint64_t used; // by somebody outside of the test
	unsigned minor;
	bool mig;
};

struct machine {
	char driver[80];
	int major; // of driver
	int cuda;
	int count;
	struct gpu gpus[MAX_GPUS];
};

// machine_path writes the path of a file of the machine.
void machine_path(char path[PATH_SIZE], const char *format, ...) __attribute__((format(printf, 2, 3)));

// machine_load reads the machine. False: there is none.
bool machine_load(struct machine *m);

// machine_lock takes the lock for all that reads and changes owners; closing
// the descriptor releases it.
int machine_lock(void);

// owner_create makes the calling process an owner. It returns the descriptor
// that has to stay open, or -1. Machine lock: held.
int owner_create(char name[OWNER_SIZE]);

// owner_remove frees all that an owner has. Machine lock: held.
void owner_remove(const char *name);

// owner_is_me tells whether the calling process is still that owner. A process
// that CRIU restored is another one, and so is one on a machine that has lost
// its memory.
bool owner_is_me(const char *name);

// owner_exists tells whether there is an owner of that name on this machine.
bool owner_exists(const char *name);

// owner_used adds up the memory that one owner has on a GPU.
uint64_t owner_used(const char *name, const char *uuid);

// memory_create makes memory of a GPU and holds it; memory_hold holds what is
// there. What they return keeps no descriptor open and is not inherited; NULL is
// a failure. name: of MEMORY_SIZE. Machine lock: held.
void *memory_create(const char *owner, const char *uuid, uint64_t size, char *name);
void *memory_hold(const char *name);

// memory_release ends a hold. owner: who made it, or NULL. Machine lock: held.
void memory_release(void *hold, const char *owner, const char *name);

// memory_export returns a descriptor that holds the memory; memory_name finds
// out what memory a descriptor is of. Machine lock: held.
int memory_export(const char *name);
bool memory_name(int fd, char *name, uint64_t *size);

// memory_held tells whether anybody holds it. Machine lock: held.
bool memory_held(const char *name);

// gpu_used adds up what everybody uses of a GPU. Machine lock: held.
uint64_t gpu_used(const struct gpu *g);

#endif
