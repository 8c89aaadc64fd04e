# SPDX-FileCopyrightText: The hetGPU authors
# SPDX-License-Identifier: Apache-2.0
"""How fast PyTorch trains and multiplies: prints "step_ms X gemm_tflops Y"."""

import statistics
import time

import torch

torch.manual_seed(7)
model = torch.nn.Sequential(*[torch.nn.Linear(2048, 2048) for _ in range(12)]).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
x, y = torch.randn(256, 2048, device="cuda"), torch.randn(256, 2048, device="cuda")


def train():
    optimizer.zero_grad()
    ((model(x) - y) ** 2).mean().backward()
    optimizer.step()


def timed(n, work, unit):
    """The median of five times n pieces of work, in units of one."""
    times = []
    for _ in range(5):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(n):
            work()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / n / unit)
    return statistics.median(times)


for _ in range(50):
    train()
a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
for _ in range(5):
    a @ a
step = timed(200, train, 1e-3)
gemm = 2 * 8192**3 / timed(20, lambda: a @ a, 1) / 1e12
print(f"step_ms {step:.4f} gemm_tflops {gemm:.1f}", flush=True)
print("done", flush=True)
while True:
    time.sleep(60)
