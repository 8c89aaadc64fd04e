/*
 * SPDX-FileCopyrightText: The hetGPU authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Included before every source of the library (Makefile), so that what was
 * built on a new system runs with glibc 2.28.
 *
 * glibc 2.34 moved libdl and libpthread into libc and gave their functions a
 * new version, to which a linker binds what it builds there. The old versions
 * still exist in the new library, for programs like ours: ask for those. On an
 * old system they are in libdl.so.2 and libpthread.so.0, which are therefore
 * linked by name; on a new one these two are empty. No new names of 2.29 and
 * later may be used (stat and fstat are of 2.33: use statx); a test looks.
 */
#ifndef HETCUDA_GLIBC_H
#define HETCUDA_GLIBC_H

#if defined(__x86_64__)
#define HETCUDA_GLIBC "GLIBC_2.2.5"
#define HETCUDA_GLIBC_SETNAME "GLIBC_2.12"
#define HETCUDA_GLIBC_SETCLOCK "GLIBC_2.3.3"
#elif defined(__aarch64__)
#define HETCUDA_GLIBC "GLIBC_2.17"
#define HETCUDA_GLIBC_SETNAME HETCUDA_GLIBC
#define HETCUDA_GLIBC_SETCLOCK HETCUDA_GLIBC
#endif

#define HETCUDA_OLD(name, version) HETCUDA_INSTEAD(name, name, version)
#define HETCUDA_INSTEAD(name, old, version) __asm__(".symver " #name ", " #old "@" version)

/* stdlib.h of 2.38 renames it, for C23's binary numbers. */
HETCUDA_INSTEAD(__isoc23_strtoul, strtoul, HETCUDA_GLIBC);

HETCUDA_OLD(dladdr, HETCUDA_GLIBC);
HETCUDA_OLD(dlclose, HETCUDA_GLIBC);
HETCUDA_OLD(dlerror, HETCUDA_GLIBC);
HETCUDA_OLD(dlopen, HETCUDA_GLIBC);
HETCUDA_OLD(dlsym, HETCUDA_GLIBC);
HETCUDA_OLD(pthread_attr_setstacksize, HETCUDA_GLIBC);
HETCUDA_OLD(pthread_condattr_setclock, HETCUDA_GLIBC_SETCLOCK);
HETCUDA_OLD(pthread_create, HETCUDA_GLIBC);
HETCUDA_OLD(pthread_detach, HETCUDA_GLIBC);
HETCUDA_OLD(pthread_getspecific, HETCUDA_GLIBC);
HETCUDA_OLD(pthread_join, HETCUDA_GLIBC);
HETCUDA_OLD(pthread_key_create, HETCUDA_GLIBC);
HETCUDA_OLD(pthread_kill, HETCUDA_GLIBC);
HETCUDA_OLD(pthread_mutex_trylock, HETCUDA_GLIBC);
HETCUDA_OLD(pthread_mutexattr_destroy, HETCUDA_GLIBC);
HETCUDA_OLD(pthread_mutexattr_init, HETCUDA_GLIBC);
HETCUDA_OLD(pthread_mutexattr_settype, HETCUDA_GLIBC);
HETCUDA_OLD(pthread_once, HETCUDA_GLIBC);
HETCUDA_OLD(pthread_rwlock_rdlock, HETCUDA_GLIBC);
HETCUDA_OLD(pthread_rwlock_unlock, HETCUDA_GLIBC);
HETCUDA_OLD(pthread_rwlock_wrlock, HETCUDA_GLIBC);
HETCUDA_OLD(pthread_setname_np, HETCUDA_GLIBC_SETNAME);
HETCUDA_OLD(pthread_setspecific, HETCUDA_GLIBC);
HETCUDA_OLD(pthread_sigmask, HETCUDA_GLIBC);
HETCUDA_OLD(sem_post, HETCUDA_GLIBC);
HETCUDA_OLD(sem_wait, HETCUDA_GLIBC);

#endif
