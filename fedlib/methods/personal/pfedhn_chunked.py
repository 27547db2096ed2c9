"""A network that writes large networks, chunk by chunk."""

import math
from dataclasses import dataclass

import torch

from ...core.method import hp
from ...core.tree import build, leaves
from .pfedhn import PFedHN


@dataclass(frozen=True)
class PFedHNChunked(PFedHN):
    """pFedHN with one output layer for all chunks of the model, each with a vector.

    The model, as one row of P numbers, is cut into Q = P / chunk chunks, rounded up.
    Chunk q, with the vector u_q, of client i's model is

        z_iq = relu(.. relu([e_i, u_q] H_1 + c_1) ..) / sqrt(width)
        w_iq = b_q + z_iq A                                              eq:pfedhn-chunk

    with A [width, chunk] the same for all chunks; the learning rule is that of pFedHN.
    Chunks are an idea of von Oswald, Henning, Grewe and Sacramento (Continual Learning
    with Hypernetworks, ICLR 2020); the code of pFedHN has one output layer per tensor.
    b keeps all P numbers, so that first models are close to task.init. Memory of the
    server: P + Q size + width chunk numbers and the hidden layers. For a ResNet-18 with
    P = 11.2 million, C = 100 and chunk = 8192 (Q = 1365): 12 million numbers, where one
    output layer per tensor has 1.13 billion.
    """

    chunk: int = hp(8192, "numbers per chunk", "a choice", (1, 10**9))

    card = PFedHN.card._replace(line="pFedHN that writes a large model piece by piece")

    def blank(self, w):
        new, n = leaves(w)[0].new_empty, self.size or 1 + self.task.C // 4
        P, width = sum(v.numel() for v in w.values()), self.width
        return {
            "e": new(self.task.C, n),
            "u": new(math.ceil(P / self.chunk), n),
            "H": self.hidden(new, 2 * n),
            "A": new(width if self.depth else 2 * n, min(self.chunk, P)),
        }

    def deviation(self, w):
        """One number: the standard deviation within tensors, over the whole model."""
        centred = torch.cat([(v - v.mean()).flatten() for v in w.values()])
        return centred.square().mean().sqrt()

    def codes(self, phi, z):
        """Vectors [M, size] -> codes of the chunks [M, Q, width]."""
        u, M = phi["u"], len(z)
        pairs = [z[:, None].expand(M, *u.shape), u.expand(M, *u.shape)]  # e_i, u_q
        return super().codes(phi, torch.cat(pairs, 2))

    def models(self, phi, z):
        """Codes [..., Q, width] -> parameters, every leaf [..., its shape]."""
        b = leaves(phi["b"])
        sizes = [v.numel() for v in b]
        zA = (z @ phi["A"]).flatten(-2)[..., : sum(sizes)].split(sizes, -1)
        w = [v + p.reshape(*p.shape[:-1], *v.shape) for v, p in zip(b, zA)]
        return build(phi["b"], w)  # eq:pfedhn-chunk
