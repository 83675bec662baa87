"""What the recipes of this folder share: two kinds of a model, with additions and with delta connections, trained on a
file for some steps.
"""
import sys

import torch
import torch.nn.functional as F


def characters(path):
    """The bytes of a text, as numbers from 0 to 255."""
    with open(path, "rb") as file:
        return torch.frombuffer(bytearray(file.read()), dtype=torch.uint8).long()


def next_character_loss(model, ids):
    """The loss of a model, ids (B, T) -> logits (B, T, 256), on a random batch."""
    batch = torch.stack([ids[i:i + 65] for i in torch.randint(len(ids) - 65, (16,))])
    return F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())


def train(model, loss_of, steps):
    """The mean loss of the first and of the last ten steps."""
    optimizer, losses = torch.optim.AdamW(model.parameters(), 3e-3), []
    for _ in range(steps):
        loss = loss_of(model)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return sum(losses[:10]) / 10, sum(losses[-10:]) / 10


def compare(make, read=characters, loss_of=next_character_loss):
    """Trains both kinds of make(channels, disable) on the file, steps and channels that the command line names."""
    path, *rest = sys.argv[1:]
    steps, channels = (*rest, *("200", "4")[len(rest):])
    data = read(path)
    for name, disable in (("additions", True), ("delta", False)):
        torch.manual_seed(1)
        first, last = train(make(int(channels), disable), lambda model: loss_of(model, data), int(steps))
        print(f"{name:10} loss {first:.3f} -> {last:.3f}")
