"""FSDP2 on two CPU processes over gloo: the sharded model takes the very steps that one process takes.

Starts its own processes. On real hardware the same code runs under `torchrun --nproc-per-node 8` with NCCL.
"""

import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from torch.distributed.fsdp import fully_shard

from iha import IHAConfig, IHAForCausalLM

WORLD, STEPS = 2, 3


def build() -> IHAForCausalLM:
    torch.manual_seed(0)
    config = IHAConfig(
        vocab_size=32, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, window=8,
        max_position_embeddings=32,
    )  # fmt: skip
    return IHAForCausalLM(config)


def train(model: torch.nn.Module, tokens: torch.Tensor) -> list[float]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(STEPS):
        loss = model(tokens, labels=tokens, use_cache=False).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def worker(rank: int, port: int, tokens: torch.Tensor, expected: list[float]) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    dist.init_process_group("gloo", rank=rank, world_size=WORLD)
    torch.set_num_threads(1)
    model = build()
    for layer in model.model.layers:
        fully_shard(layer)  # alpha and R are sharded as every other parameter
    fully_shard(model)
    mine = train(model, tokens[rank : rank + 1])  # each process its own sequence
    mean = torch.tensor(mine)
    dist.all_reduce(mean)
    mean /= WORLD
    if rank == 0:
        print("two processes", [f"{loss:.5f}" for loss in mean.tolist()])
        assert torch.allclose(mean, torch.tensor(expected), atol=1e-5), (mean.tolist(), expected)
    dist.destroy_process_group()


def main() -> None:
    tokens = torch.randint(32, (WORLD, 24), generator=torch.Generator().manual_seed(1))
    expected = train(build(), tokens)
    print("one process  ", [f"{loss:.5f}" for loss in expected])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    multiprocessing.spawn(worker, args=(port, tokens, expected), nprocs=WORLD)


if __name__ == "__main__":
    main()
