// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Legacy IPC (cuIpcGetMemHandle and its kin) for memory of ours.
#ifndef HETCUDA_IPC_H
#define HETCUDA_IPC_H

// Around a fork: no descriptor is received or made meanwhile that the child
// would keep.
void hetcuda_ipc_lock(void);
void hetcuda_ipc_unlock(void);

// In the child, in place of hetcuda_ipc_unlock.
void hetcuda_ipc_forked(void);

#endif
