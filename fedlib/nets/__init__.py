"""Networks as plain functions of (w, x).

A network is a frozen dataclass of sizes. Its weights are a flat dict `name -> tensor`
that it never holds:

    init(seed, dtype)        fresh weights and buffers: a function of the seed alone
    feat(w, x, b, stats)     x [B, ...] -> features z [B, D]
    out(w, z)                z [B, D] -> logits [B, K], by the head
    head, layers, buffers    names: the last layer; one tuple per layer with parameters;
                             the running statistics of batch norm
    norms                    names: the tensors of norm layers, statistics included
    units                    names: one tuple per convolution or linear layer together
                             with its norm layer
    D, K                     feature width, number of classes

So the same code runs on one model, under `torch.func.grad`, and under `torch.func.vmap`
over many models, in float32 and float64. Batch norm needs to know its batch: with b
None (evaluation) it uses its buffers; with a Batch b the statistics of the rows that
count (b.m), and then `stats`, if it is a dict, receives the updated buffers.

Initial weights are torch's defaults: weights and biases of convolutions and linear
layers uniform in +-1/sqrt(fan in); norm layers 1 and 0. Exceptions follow their
sources: the convolutions of ResNet18, ResNet50 and WideResNet are normal with variance
2 / fan out (torchvision; the authors' code), the biases of Linear and of WideResNet's
head are 0.
`layers` has what networks are made of, `closed` those for vectors, `images` those for
images. `module` gives any `torch.nn.Module` this protocol.
Letters: B batch, K classes, D feature width, P parameters.
"""

from .closed import MLP, Linear
from .images import CNN, AlexNetBN, FedAvgCNN, ResNet18, ResNet50, WideResNet
from .layers import Net, Rows, batch_norm, dense, linear_part, norm_part
from .module import Module, fitted

# by name in descriptions of tasks, in this order
NETWORKS = (AlexNetBN, ResNet18, ResNet50, WideResNet, CNN, MLP, FedAvgCNN, Linear)

__all__ = [c.__name__ for c in NETWORKS]
__all__ += ["Module", "fitted"]
__all__ += ["Net", "Rows", "batch_norm", "dense", "linear_part", "norm_part"]
