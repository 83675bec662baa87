"""A residual network of convolutions, as of torchvision, with delta connections: positions of the image are the rows of
the state. On 8 x 8 images of digits: python3 resnet.py data/digits/digits.bin [STEPS [CHANNELS]]
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
import toy

import deep_delta as dd


class Branch(nn.Module):
    """The branch of a BasicBlock, for rows (B, H W, d)."""

    def __init__(self, d):
        super().__init__()
        self.f = nn.Sequential(nn.Conv2d(d, d, 3, padding=1, bias=False), nn.BatchNorm2d(d), nn.ReLU(),
                               nn.Conv2d(d, d, 3, padding=1, bias=False), nn.BatchNorm2d(d))

    def forward(self, x):
        side = int(x.shape[1] ** 0.5)
        return self.f(x.transpose(1, 2).unflatten(-1, (side, side))).flatten(2).transpose(1, 2)


class Stage(nn.Module):
    """A convolution to the width and the stride of the stage, then blocks on one state."""

    def __init__(self, before, d, stride, blocks, channels, **options):
        super().__init__()
        self.channels, self.enter = channels, nn.Conv2d(before, d, 3, stride, padding=1)
        options.setdefault("ddl_compress", "channel")  # "token" mixes earlier rows: for sequences
        self.blocks = nn.ModuleList(dd.wrap(Branch(d), d, channels, index=i, **options) for i in range(blocks))
        # The weights of a readout are small at first: it is followed by a norm, as in a Transformer.
        self.readout, self.norm = dd.Readout(d, channels, **options), nn.BatchNorm2d(d)

    def forward(self, image):
        image = self.enter(image)
        X = dd.expand(image.flatten(2).transpose(1, 2), self.channels)
        for block in self.blocks:
            X = block(X)
        return F.relu(self.norm(self.readout(X).transpose(1, 2).reshape(image.shape)))


class ResNet(nn.Module):
    def __init__(self, classes=10, widths=(16, 32), blocks=2, channels=4, **options):
        super().__init__()
        self.stages = nn.Sequential(*[Stage(before, d, 1 + (i > 0), blocks, channels, **options)
                                      for i, (before, d) in enumerate(zip((1, *widths), widths))])
        self.head = nn.Linear(widths[-1], classes)

    def forward(self, images):
        return self.head(self.stages(images).mean((2, 3)))


def digits(path):
    """Images (N, 1, 8, 8) in 0 to 1, labels (N): records of 64 pixels, 0 to 16, and the label."""
    with open(path, "rb") as file:
        rows = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8).view(-1, 65)
    return rows[:, :64].float().view(-1, 1, 8, 8) / 16, rows[:, 64].long()


def loss_of(model, data):
    """The loss on a random batch."""
    images, labels = data
    at = torch.randint(len(images), (32,))
    return F.cross_entropy(model(images[at]), labels[at])


if __name__ == "__main__":
    toy.compare(lambda channels, disable: ResNet(channels=channels, disable=disable), digits, loss_of)
