"""Plain torch modules, and the numbers of groups of their norm layers by hand."""

from torch import nn

GROUPS = {4: 1, 8: 2, 16: 4, 32: 8, 64: 16, 128: 32, 160: 32, 256: 32, 320: 32}
GROUPS |= dict.fromkeys((512, 640, 1024, 2048), 32)


def grouped(c):
    return nn.GroupNorm(GROUPS[c], c)


def mlp(*widths, norm=None):
    out = []
    for a, b in zip(widths[:-2], widths[1:-1]):
        out += [nn.Linear(a, b), *([norm(b)] if norm else []), nn.ReLU()]
    return nn.Sequential(*out, nn.Linear(*widths[-2:]))


def cnn(channels, K, widths, norm=grouped):
    a, b = widths
    first = [nn.Conv2d(channels, a, 5, 2, 2, bias=False), norm(a), nn.ReLU()]
    second = [nn.Conv2d(a, b, 3, 1, 1, bias=False), norm(b), nn.ReLU()]
    end = [nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(16 * b, K)]
    return nn.Sequential(*first, nn.MaxPool2d(2), *second, *end)
