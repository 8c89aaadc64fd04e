# SPDX-FileCopyrightText: The hetGPU authors
# SPDX-License-Identifier: Apache-2.0
"""Does the same thing step by step in one of several frameworks.

    frameworks.py NAME STEPS

Each step prints "step N ..." with a result to the last bit, the last line is
"done". A NAME whose framework is not installed prints "missing MODULE".
"""

import os
import sys
import time

PAUSE = 0.05  # seconds between steps, so that a checkpoint falls between two


def compiled():
    """torch.compile, whose kernels Triton makes while the program runs."""
    import torch

    torch.manual_seed(7)
    layers = [torch.nn.Linear(512, 512), torch.nn.GELU(), torch.nn.LayerNorm(512), torch.nn.Linear(512, 512)]
    model = torch.nn.Sequential(*layers).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    run = torch.compile(model)
    x = torch.randn(64, 512, device="cuda")
    while True:
        loss = (run(x) - x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item().hex()


def graph():
    """A CUDA graph that is captured once and replayed at every step."""
    import torch

    torch.manual_seed(7)
    a = torch.randn(512, 512, device="cuda") / 32
    x = torch.randn(512, 512, device="cuda")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            x.copy_(torch.tanh(a @ x))
    torch.cuda.synchronize()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        x.copy_(torch.tanh(a @ x) + 0.01)
    while True:
        captured.replay()
        yield x.sum().item().hex()


def generate():
    """A transformer writes, one token a step, with what it has seen kept."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(7)
    model = GPT2LMHeadModel(GPT2Config(n_layer=6, n_embd=512, n_head=8)).cuda().eval()
    token, past = torch.tensor([[1, 2, 3]], device="cuda"), None
    while True:
        with torch.no_grad():
            out = model(input_ids=token, past_key_values=past, use_cache=True)
        past, token = out.past_key_values, out.logits[:, -1:].argmax(-1)
        yield str(token.item())


def ordered():
    """Stream-ordered memory in place of PyTorch's own allocator, on two streams."""
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "backend:cudaMallocAsync"
    import torch

    torch.manual_seed(7)
    a = torch.randn(512, 512, device="cuda") / 32
    x = torch.randn(512, 512, device="cuda")
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()
    while True:
        side.wait_stream(main)
        with torch.cuda.stream(side):
            y = torch.tanh(a @ x)
            x.record_stream(side)
        main.wait_stream(side)
        x = torch.cat([y, y])[256:768] + 0.01
        y.record_stream(main)
        yield torch.cuda.get_allocator_backend() + " " + x.sum().item().hex()


def blas():
    """cuBLAS and cuBLASLt in four precisions, batched and not, and cuSOLVER."""
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # the same algorithms each time
    import torch

    torch.manual_seed(7)
    torch.backends.cuda.matmul.allow_tf32 = True
    kinds = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
    a = {kind: torch.randn(768, 768, device="cuda", dtype=torch.float64).div(28).to(kind) for kind in kinds}
    x = {kind: torch.randn(768, 768, device="cuda", dtype=torch.float64).to(kind) for kind in kinds}
    batch = torch.randn(24, 96, 96, device="cuda") / 10
    bias = torch.randn(768, device="cuda", dtype=torch.bfloat16)
    spd = torch.eye(64, device="cuda", dtype=torch.float64) * 70 + torch.ones(64, 64, device="cuda", dtype=torch.float64)
    while True:
        for kind in kinds:
            x[kind] = torch.tanh(a[kind] @ x[kind])
        x[torch.bfloat16] = torch.nn.functional.linear(x[torch.bfloat16], a[torch.bfloat16], bias).tanh()
        batch = torch.bmm(batch, batch).tanh()
        spd = torch.linalg.cholesky(spd) @ torch.linalg.cholesky(spd).T
        results = [*x.values(), batch, spd]
        yield " ".join(r.double().sum().item().hex() for r in results)


def cudnn():
    """cuDNN's convolutions and its LSTM, forward and backward."""
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # the LSTM needs it to be the same each time
    import torch

    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False  # it would choose by time
    torch.manual_seed(7)
    images = torch.nn.Sequential(
        torch.nn.Conv2d(3, 32, 3, padding=1), torch.nn.BatchNorm2d(32), torch.nn.ReLU(),
        torch.nn.Conv2d(32, 32, 3, stride=2), torch.nn.ReLU(), torch.nn.ConvTranspose2d(32, 3, 4, stride=2),
    ).cuda()
    words = torch.nn.LSTM(64, 128, num_layers=2, batch_first=True).cuda()
    optimizer = torch.optim.SGD([*images.parameters(), *words.parameters()], lr=1e-2)
    x = torch.randn(16, 3, 64, 64, device="cuda")
    y = torch.randn(16, 40, 64, device="cuda")
    while True:
        a = images(x).square().mean()
        b = words(y)[0].square().mean()
        optimizer.zero_grad()
        (a + b).backward()
        optimizer.step()
        yield f"{torch.backends.cudnn.version()} {a.item().hex()} {b.item().hex()}"


def cupy():
    """Kernels of its own, cuBLAS, and memory of a pool."""
    import cupy as cp

    rng = cp.random.RandomState(7)
    a = rng.standard_normal((1024, 1024)) / 32
    x = rng.standard_normal((1024, 1024))
    add = cp.ElementwiseKernel("float64 x", "float64 y", "y = tanh(x) + 0.01", "add")
    while True:
        x = add(a @ x)
        yield float(x.sum()).hex()


def jax():
    """XLA's own kernels."""
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    os.environ["XLA_FLAGS"] = "--xla_gpu_autotune_level=0"  # it would choose by time
    import jax as j

    step = j.jit(lambda a, x: j.numpy.tanh(a @ x) + 0.01)
    a = j.random.normal(j.random.key(7), (1024, 1024)) / 32
    x = j.random.normal(j.random.key(8), (1024, 1024))
    while True:
        x = step(a, x)
        yield float(x.sum()).hex()


def main():
    steps = {f.__name__: f for f in (compiled, graph, generate, ordered, blas, cudnn, cupy, jax)}[sys.argv[1]]()
    for n in range(1, int(sys.argv[2]) + 1):
        try:
            result = next(steps)
        except ModuleNotFoundError as e:
            print("missing", e.name, flush=True)
            break
        print("step", n, result, flush=True)
        time.sleep(PAUSE)
    print("done", flush=True)
    # The suite ends the container, so that its output is read to the end.
    while True:
        time.sleep(60)


main()
