/*
 * SPDX-FileCopyrightText: The hetGPU authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Sockets in the control directory (hetcuda_control.h), and who listens there.
 */
#ifndef HETCUDA_LISTEN_H
#define HETCUDA_LISTEN_H

#include <stdbool.h>
#include <sys/un.h>

enum { HETCUDA_PATH = sizeof(((struct sockaddr_un *)0)->sun_path) };

/* The control directory; NULL if there is none, or none for this program. */
const char *hetcuda_control_directory(void);

/*
 * Listens on "<prefix><pid>" in the control directory, with ".<n>" behind it if
 * another process of that PID does. The descriptor, or an errno (negative).
 */
int hetcuda_listen(const char *prefix, char path[HETCUDA_PATH]);

/*
 * The program may have closed all descriptors that it did not know, and opened
 * others: what has the listener's number now is not ours, to accept from or to
 * close.
 */
bool hetcuda_listening(int fd, const char *path);

#endif
