# SPDX-FileCopyrightText: The hetGPU authors
# SPDX-License-Identifier: Apache-2.0
"""Two processes of PyTorch that share a tensor of the device and an event.

    share.py STEPS

The first changes the tensor at every step, records the event, and tells the second
one, which waits for the event on the device, and answers with what it sees. Each
step prints "step N SUM SUM" with both sums to the last bit, the last line is "done".
"""

import sys
import time

PAUSE = 0.05  # seconds between steps, so that a checkpoint falls between two


def look(requests, answers):
    import torch

    x, handle = requests.get()
    event = torch.cuda.Event.from_ipc_handle(torch.device("cuda", 0), handle)
    while True:
        requests.get()
        torch.cuda.current_stream().wait_event(event)
        answers.put(x.sum().item().hex())


def main():
    import torch
    import torch.multiprocessing as mp

    context = mp.get_context("spawn")  # a forked process can't use CUDA
    requests, answers = context.SimpleQueue(), context.SimpleQueue()
    other = context.Process(target=look, args=(requests, answers), daemon=True)
    other.start()
    torch.manual_seed(7)
    a = torch.randn(1024, 1024, device="cuda") / 32
    x = torch.randn(1024, 1024, device="cuda")
    event = torch.cuda.Event(interprocess=True)
    event.record()
    requests.put((x, event.ipc_handle()))
    for n in range(1, int(sys.argv[1]) + 1):
        x.copy_(torch.tanh(a @ x) + 0.01)
        event.record()
        requests.put(n)
        seen = answers.get()
        mine = x.sum().item().hex()
        if seen != mine:
            sys.exit(f"step {n}: the other process sees {seen}, and here is {mine}")
        print("step", n, mine, seen, flush=True)
        time.sleep(PAUSE)
    print("done", flush=True)
    # The suite ends the container, so that its output is read to the end.
    while True:
        time.sleep(60)


if __name__ == "__main__":
    main()
