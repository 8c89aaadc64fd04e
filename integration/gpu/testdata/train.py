# SPDX-FileCopyrightText: The hetGPU authors
# SPDX-License-Identifier: Apache-2.0
"""Trains a small network and prints every loss to the last bit.

    train.py STEPS [plain | MIB]

"plain" trains in Python alone, for machines without PyTorch: the rehearsal of
the suite uses it. With MIB so much device memory is filled besides, and a part of it
is in every batch. Each step prints "step N loss HEX", the last line is "done".
"""

import os
import sys
import time

PAUSE = 0.1  # seconds between steps, so that a checkpoint falls between two
BATCHES = 128
BALLAST_MIB = BATCHES * 256 * 2048 * 4 >> 20


def torch_losses(mib):
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # deterministic algorithms need it
    import torch

    torch.use_deterministic_algorithms(True)
    torch.manual_seed(7)
    device = torch.device("cuda")
    layers = []
    for _ in range(12):
        layers += [torch.nn.Linear(2048, 2048), torch.nn.GELU()]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(2048, 16)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    # The batches come from the device's own generator: its state, too, has to
    # be in the snapshot.
    target = torch.nn.Linear(2048, 16).to(device)
    ballast = [torch.randn(BATCHES, 256, 2048, device=device) for _ in range(mib // BALLAST_MIB)]
    while True:
        x = torch.randn(256, 2048, device=device)
        for tensor in ballast:
            x += tensor[int(torch.randint(BATCHES, ()))] / len(ballast)
        with torch.no_grad():
            y = target(x)
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item()


def plain_losses():
    import random

    rng = random.Random(7)
    weights = [0.0] * 256
    target = [rng.random() for _ in weights]
    while True:
        x = [rng.gauss(0, 1) for _ in weights]
        error = sum(a * (w - t) for a, w, t in zip(x, weights, target))
        weights = [w - 0.002 * error * a for w, a in zip(weights, x)]
        yield error * error


def main():
    steps = int(sys.argv[1])
    more = sys.argv[2] if len(sys.argv) > 2 else "0"
    losses = plain_losses() if more == "plain" else torch_losses(int(more))
    for n in range(1, steps + 1):
        print("step", n, "loss", next(losses).hex(), flush=True)
        time.sleep(PAUSE)
    print("done", flush=True)
    # The suite ends the container, so that its output is read to the end.
    while True:
        time.sleep(60)


main()
