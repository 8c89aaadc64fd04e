# SPDX-FileCopyrightText: The hetGPU authors
# SPDX-License-Identifier: Apache-2.0
"""Trains a network on two GPUs and prints every loss to the last bit.

    ddp.py STEPS [plain]

A process for each rank, forked before anything of CUDA is loaded; gradients are
averaged by DistributedDataParallel over NCCL, losses by an all-reduce of their
own. "plain" trains in Python alone, over a TCP connection as NCCL's, for machines
without PyTorch: the rehearsal of the suite uses it. Rank 0 prints "step N loss HEX" for each step, and "done"
at the end.
"""

import os
import sys
import time

WORLD = 2
PAUSE = 0.02  # seconds between steps: most of the time is spent in one


def torch_losses(rank, _):
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # deterministic algorithms need it
    import torch
    import torch.distributed as dist

    torch.use_deterministic_algorithms(True)
    torch.cuda.set_device(rank)
    # A file, and not a port: no connection but NCCL's own has to be saved. In
    # memory that is a part of the snapshot, since it is looked at later too.
    dist.init_process_group("nccl", init_method="file:///dev/shm/rendezvous", rank=rank, world_size=WORLD)
    torch.manual_seed(7)  # the same weights in all ranks
    layers = []
    for _ in range(8):
        layers += [torch.nn.Linear(2048, 2048), torch.nn.GELU()]
    network = torch.nn.Sequential(*layers, torch.nn.Linear(2048, 16)).cuda()
    model = torch.nn.parallel.DistributedDataParallel(network, device_ids=[rank])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    torch.manual_seed(100 + rank)  # and other batches
    while True:
        x = torch.randn(256, 2048, device="cuda")
        y = torch.randn(256, 16, device="cuda")
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total = loss.detach().clone()
        dist.all_reduce(total)
        yield total.item()


def connect(rank, listener):
    """The ranks' connection over the loopback device. NCCL keeps listening, too."""
    import socket

    if rank == 0:
        return listener.accept()[0]
    connection = socket.create_connection(listener.getsockname())
    listener.close()
    return connection


def plain_losses(rank, listener):
    import random
    import socket
    import struct

    other = connect(rank, listener)
    rng = random.Random(100 + rank)
    weight, target = 0.0, 3.0
    while True:
        x = rng.gauss(0, 1)
        error = (weight - target) * x
        other.sendall(struct.pack("dd", error * x, error * error))
        gradient, loss = struct.unpack("dd", other.recv(16, socket.MSG_WAITALL))
        # In the order of the ranks, so that both get the same.
        first, second = (error * x, gradient) if rank == 0 else (gradient, error * x)
        weight -= 0.05 * (first + second)
        yield error * error + loss


def train(rank, listener):
    steps = int(sys.argv[1])
    losses = (plain_losses if sys.argv[2:] == ["plain"] else torch_losses)(rank, listener)
    for n in range(1, steps + 1):
        loss = next(losses)
        if rank == 0:
            print("step", n, "loss", loss.hex(), flush=True)
        time.sleep(PAUSE)
    if rank == 0:
        print("done", flush=True)
    # The suite ends the container, so that its output is read to the end.
    while True:
        time.sleep(60)


def main():
    import socket

    listener = socket.create_server(("127.0.0.1", 0)) if sys.argv[2:] == ["plain"] else None
    for rank in range(WORLD):
        if os.fork() == 0:
            train(rank, listener)
    if listener:
        listener.close()
    _, status = os.wait()
    sys.exit(f"a rank ended with status {status}")


main()
