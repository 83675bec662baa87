"""One of two processes of test_fsdp: trains a sharded stack on its half of a batch. python3 fsdp_worker.py RANK FOLDER"""
import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import deep_delta as dd


def stack(mode):
    """Four steps with three channels and a readout, as every process makes them."""
    torch.manual_seed(1)
    blocks = [dd.wrap(torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Tanh()), 16, 3, index=i, fused=mode) for i in range(4)]
    return torch.nn.Sequential(*blocks, dd.Readout(16, 3))


def batch():
    """Input (B, T, d) of both processes."""
    return torch.randn(4, 5, 16, generator=torch.Generator().manual_seed(2))


def train(model, x, steps=3):
    """The losses of some steps of SGD."""
    optimizer, losses = torch.optim.SGD(model.parameters(), 0.1), []
    for _ in range(steps):
        loss = model(dd.expand(x, 3)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses)


def main(rank, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    result = {}
    for mode in ("yes", "release", "no"):
        model = stack(mode)
        for block in model:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
        losses = train(model, batch()[2 * rank:2 * rank + 2])
        dist.all_reduce(losses)
        parameters = {name: p.full_tensor() for name, p in model.named_parameters()}
        result[mode] = losses / 2, parameters, sum(p.to_local().numel() for p in model.parameters())
    if rank == 0:
        torch.save(result, f"{folder}/result")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
