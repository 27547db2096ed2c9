"""Features of a frozen image tower in place of images: then a federation over CLIP is
one over a small network on vectors.
"""

from __future__ import annotations

import torch

from ..core.pool import Pool
from ..nets.towers import load
from .settings import settings


@settings(chunk=(1,))
@torch.no_grad()
def features(data: Pool, model, arch: str = "ViT-B-32", chunk: int = 500) -> Pool:
    """The images of another source, seen once by the image tower: x [N, d] float32, not
    normalised; the rest as it was.

    data   a Pool of images [N, 1 or 3, H, W] in [0, 1]; in the description of a task
           that of their source, {"name": "domains", "preset": "PACS", ...}
    model  two towers, or what `fedlib.nets.towers.load` reads: the stand-in's file, a
           weight file or folder for open_clip
    arch   architecture of a weight file
    chunk  images at a time

    Each image is seen as it is: the tower is frozen and there is no augmentation. With
    a stand-in of CLIP the pool is one, too.
    """
    pool = data
    if not isinstance(pool, Pool):
        raise ValueError(
            f"data = {data!r}: describe the source of the images, data: "
            '{"name": "domains", ...}, or give a Pool'
        )
    if pool.x.dim() != 4 or pool.x.shape[1] not in (1, 3):
        raise ValueError(
            f"{pool.name} has rows of shape {list(pool.x.shape[1:])}: the image tower "
            "sees images [1 or 3, height, width]"
        )
    towers = load(model, arch)
    images = (x.expand(-1, 3, -1, -1) for x in pool.x.split(chunk))
    x = torch.cat([towers.encode_image(towers.preprocess(x)) for x in images])
    kind = pool.kind if towers.kind == "real" else towers.kind
    return pool._replace(name=f"{pool.name} (CLIP features)", x=x, kind=kind)
