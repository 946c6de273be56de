"""Run by test_interop under `accelerate launch`: two optimiser steps on a batch of four, shared among the processes."""

import sys

import torch
from accelerate import Accelerator
from tiny import tiny_model, tokens
from torch.utils.data import DataLoader

accelerator = Accelerator(cpu=True)
model = tiny_model().train()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = DataLoader(list(tokens(8, 10)), batch_size=4 // accelerator.num_processes)
model, optimizer, data = accelerator.prepare(model, optimizer, data)
steps = 0
for x in data:
    accelerator.backward(model(x, labels=x).loss)
    optimizer.step()
    optimizer.zero_grad()
    steps += 1
assert steps == 2, steps
accelerator.wait_for_everyone()
if accelerator.is_main_process:
    torch.save(accelerator.unwrap_model(model).state_dict(), sys.argv[1])
