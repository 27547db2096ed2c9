"""Two towers: the stand-in, open_clip as the oracle, features, and the two networks
that are trained beside them.
"""

import json
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from toys_clip import NAMES, towers

from fedlib.core.pool import Pool
from fedlib.core.tree import tmap
from fedlib.data import standin, tasks
from fedlib.data.features import features
from fedlib.data.glyphs import ALPHABET, glyphs
from fedlib.data.standin import train, vocabulary
from fedlib.nets import CNN
from fedlib.nets.clip import Adapter, Prompts
from fedlib.nets.towers import TextTower, load

QUICK = standin.Recipe(150, 1, classes=20, batch=64, fresh=20)


@pytest.fixture(scope="module")
def trained():
    return train(QUICK)


@pytest.fixture(scope="module")
def open_clip():
    import fedlib.nets.vision  # noqa: F401

    return pytest.importorskip("open_clip")


# ---------------------------------------------------------------- the stand-in
def test_text_tower_is_torchs_transformer():
    """Layer by layer the numbers of nn.TransformerEncoderLayer with a causal mask,
    read off at the end.
    """
    tower = TextTower(30, width=12, heads=3, blocks=2, context=9, d=5)
    g = torch.Generator().manual_seed(0)
    w = {k: torch.randn(v.shape, generator=g) for k, v in tower.init(g).items()}
    x, end = torch.randn(4, 9, 12, generator=g), torch.tensor([3, 8, 5, 1])
    z = x + w["text.places"]
    for k in range(2):
        layer = nn.TransformerEncoderLayer(
            12, 3, 48, 0.0, F.gelu, batch_first=True, norm_first=True
        ).eval()
        layer.load_state_dict(
            {
                f"{theirs}.{leaf}": w[f"text.{k}.{ours}.{leaf}"]
                for leaf in ("weight", "bias")
                for ours, theirs in (
                    ("mix", "self_attn.out_proj"),
                    ("norm1", "norm1"),
                    ("norm2", "norm2"),
                    ("up", "linear1"),
                    ("down", "linear2"),
                )
            }
            | {
                f"self_attn.in_proj_{leaf}": w[f"text.{k}.qkv.{leaf}"]
                for leaf in ("weight", "bias")
            }
        )
        z = layer(z, src_mask=nn.Transformer.generate_square_subsequent_mask(9))
    z = F.layer_norm(
        z[torch.arange(4), end], (12,), w["text.norm.weight"], w["text.norm.bias"]
    )
    want = F.linear(z, w["text.project.weight"], w["text.project.bias"])
    assert torch.allclose(tower(w, x, end), want, rtol=1e-4, atol=1e-4)
    after = x[:1].index_fill(1, torch.tensor([4, 8]), 9.0)
    assert torch.equal(tower(w, after, end[:1]), tower(w, x[:1], end[:1]))


def test_tokens():
    model = towers()
    got = model.tokenize(["a picture of Latin Capital Letter A .", "greater-than."])
    assert (
        " ".join(model.words[i] for i in got[0, :10])
        == "<start> a picture of latin capital letter a . <end>"
    )
    assert [model.words[i] for i in got[1, :4]] == [
        "<start>",
        "greater-than",
        ".",
        "<end>",
    ]
    assert model.end(got).tolist() == [9, 3]
    assert got[0, 10:].sum() == 0
    assert model.words[0] == "<pad>"
    assert len(vocabulary()) == len(set(vocabulary())) and "empty" in vocabulary()
    names = [standin.name_of(c) for c in ALPHABET]
    assert len(
        model.tokenize([model.template.format(n) for n in names]).unique(dim=0)
    ) == len(set(names))
    with pytest.raises(ValueError, match="'zebra'.*CLIP's weights"):
        model.tokenize(["a picture of zebra ."])
    with pytest.raises(ValueError, match="33 tokens.*reads 32"):
        model.tokenize(["x " * 31])


def test_stand_in_is_its_towers():
    model, x = towers(), torch.rand(3, 3, 16, 16)
    net, w = (
        CNN(3, 64, widths=(32, 64)),
        {k[6:]: v for k, v in model.weights.items() if k.startswith("image.")},
    )
    seen = (x - 0.5) / 0.25
    assert torch.allclose(model.preprocess(x), seen)
    assert torch.allclose(
        model.encode_image(seen), net.out(w, net.feat(w, seen)), atol=1e-6
    )
    t = model.tokenize(["a photo of the latin small letter b .", "x x x"])
    one = model.encode_text_from_embeddings(
        model.token_embedding(t[:1]), model.end(t[:1])
    )
    assert torch.allclose(model.encode_text(t)[:1], one, atol=1e-6)
    assert one.shape == (1, model.d)
    double = model.encode_text_from_embeddings(
        model.token_embedding(t).double(), model.end(t)
    )
    assert double.dtype == torch.float64
    assert torch.allclose(double.float(), model.encode_text(t), atol=1e-5)
    assert model.logit_scale == pytest.approx(5) and model.kind == "stand-in"


def test_training_is_a_function_of_the_recipe(trained, tmp_path):
    trained.save(tmp_path / "deeper" / "a.pt")
    train(QUICK).save(tmp_path / "b.pt")
    assert (tmp_path / "deeper" / "a.pt").read_bytes() == (
        tmp_path / "b.pt"
    ).read_bytes()
    got = load(tmp_path / "b.pt")
    assert got is load(str(tmp_path / "b.pt"))
    assert got.words == trained.words
    assert got.recipe == trained.recipe
    assert all(torch.equal(v, trained.weights[k]) for k, v in got.weights.items())
    assert got.zero_shot == trained.zero_shot
    assert set(got.zero_shot) == {
        "photo",
        "cartoon",
        "painting",
        "sketch",
        "neon",
        "halftone",
    }
    assert not torch.equal(
        train(replace(QUICK, seed=1)).weights["text.words"],
        trained.weights["text.words"],
    )
    assert load(trained) is trained
    other = train(replace(QUICK, images=130))
    other.save(tmp_path / "b.pt")
    assert load(tmp_path / "b.pt") is not got
    assert torch.equal(load(tmp_path / "b.pt").weights["scale"], other.weights["scale"])


# ---------------------------------------------------------------- open_clip
SMALL = {
    "embed_dim": 8,
    "vision_cfg": {
        "image_size": 32,
        "layers": 1,
        "width": 16,
        "patch_size": 16,
        "head_width": 8,
    },
    "text_cfg": {
        "context_length": 24,
        "vocab_size": 49408,
        "width": 16,
        "heads": 2,
        "layers": 2,
    },
}


@pytest.fixture(scope="module", params=["CLIP", "CustomTextCLIP"])
def folder(request, open_clip, tmp_path_factory):
    """A tiny model of open_clip with random weights, as a folder:
    (folder, open_clip's own model).
    """
    path = tmp_path_factory.mktemp(request.param)
    config = SMALL | {"custom_text": request.param == "CustomTextCLIP"}
    how = {"mean": [0.5, 0.4, 0.3], "std": [0.2, 0.25, 0.3]}
    (path / "open_clip_config.json").write_text(
        json.dumps({"model_cfg": config, "preprocess_cfg": how})
    )
    torch.manual_seed(0)
    model = open_clip.create_model(f"local-dir:{path}").eval()
    assert type(model).__name__ == request.param
    with torch.no_grad():
        for v in model.parameters():
            v.add_(0.05 * torch.randn(v.shape))
    torch.save(model.state_dict(), path / "open_clip_pytorch_model.bin")
    return path, model


def test_open_clip_is_the_oracle(open_clip, folder):
    path, theirs = folder
    ours, sentences = load(path), ["a photo of a cat", "two dogs and a very long horse"]
    t = ours.tokenize(sentences)
    assert torch.equal(t, open_clip.get_tokenizer(f"local-dir:{path}")(sentences))
    assert t.shape == (2, 24)
    want = theirs.encode_text(t).detach()
    assert torch.allclose(ours.encode_text(t), want, atol=1e-6)
    assert torch.allclose(
        ours.encode_text_from_embeddings(ours.token_embedding(t), ours.end(t)),
        want,
        atol=1e-5,
    )
    x = torch.rand(2, 3, 32, 32)
    seen = (x - torch.tensor([0.5, 0.4, 0.3]).view(3, 1, 1)) / torch.tensor(
        [0.2, 0.25, 0.3]
    ).view(3, 1, 1)
    assert torch.allclose(ours.preprocess(x), seen, atol=1e-6)
    assert torch.allclose(
        ours.encode_image(seen), theirs.encode_image(seen).detach(), atol=1e-6
    )
    assert ours.d == 8
    assert ours.width == 16
    assert ours.image_size == 32
    assert ours.context_length == 24
    assert ours.kind == "real"
    assert ours.logit_scale == pytest.approx(theirs.logit_scale.exp().item())
    assert ours is load(path)
    assert not any(v.requires_grad for v in ours.model.parameters())
    assert not ours.model.training
    with pytest.raises(ValueError, match="reads 24"):
        ours.tokenize(["cat " * 30])


# torch's attention under vmap on a CPU


# ---------------------------------------------------------------- features
def test_features(trained, tmp_path):
    spec = {"name": "glyphs", "n": 30, "classes": 5, "size": 20}
    pool, images = (
        tasks.pool_of({"name": "features", "data": spec, "model": trained, "chunk": 7}),
        glyphs(30, 5, size=20),
    )
    shrunk = F.interpolate(images.x, size=(16, 16), mode="bilinear", antialias=True)
    want = trained.encode_image((shrunk.clamp(0, 1) - 0.5) / 0.25)
    assert torch.allclose(pool.x, want, atol=1e-5)
    assert pool.x.dtype == torch.float32
    assert not pool.x.requires_grad
    assert torch.equal(pool.y, images.y)
    assert torch.equal(pool.owner, images.owner)
    assert pool.owners == images.owners
    assert pool.name == "glyphs-5 (CLIP features)" and pool.kind == "stand-in"
    trained.save(tmp_path / "m.pt")
    assert torch.equal(features(images, str(tmp_path / "m.pt"), chunk=7).x, pool.x)
    grey = Pool(
        "grey", torch.rand(4, 1, 16, 16), torch.zeros(4, dtype=torch.long), 2, "real"
    )
    assert torch.allclose(
        features(grey, trained).x,
        features(grey._replace(x=grey.x.expand(-1, 3, -1, -1)), trained).x,
    )
    assert features(grey, trained).kind == "stand-in"
    with pytest.raises(ValueError, match="shape .*6"):
        features(grey._replace(x=torch.rand(4, 6)), trained)
    with pytest.raises(ValueError, match="describe the source"):
        features("domains", trained)
    with pytest.raises(ValueError, match="did you mean 'glyphs'"):
        tasks.pool_of({"name": "features", "data": {"name": "glyph"}, "model": trained})
    with pytest.raises(ValueError, match="chunk = 0"):
        features(grey, trained, chunk=0)


# ---------------------------------------------------------------- networks
def nets(d=6, K=3, dtype=torch.float64):
    model = towers(d)
    return [
        Adapter(d, K, NAMES[:K], model),
        Prompts(d, K, NAMES[:K], model, M=3),
        Prompts(d, K, NAMES[:K], model, M=3, class_specific=True),
    ]


@pytest.mark.parametrize("net", nets(), ids=["adapter", "prompts", "class-specific"])
def test_network(net):
    g = torch.Generator().manual_seed(1)
    w, x = (
        net.init(2, torch.float64),
        torch.randn(5, 6, generator=g, dtype=torch.float64),
    )
    y = torch.tensor([0, 2, 1, 1, 0])
    assert net.head == ()
    assert net.buffers == ()
    assert [n for layer in net.layers for n in layer] == list(w)
    assert [n for unit in net.units for n in unit] == list(w)
    assert torch.equal(net.init(2)[net.layers[0][0]].double(), w[net.layers[0][0]])
    z = net.feat(w, x)
    assert z.shape == (5, net.D)
    assert torch.allclose(z.norm(dim=1), torch.ones(5).double())
    t = net.texts(w) if isinstance(net, Prompts) else net.text.double()
    assert torch.allclose(
        net.out(w, z), 5 * F.cosine_similarity(z[:, None], t[None], dim=-1), atol=1e-6
    )
    L = lambda *v: F.cross_entropy(
        net.out(dict(zip(w, v)), net.feat(dict(zip(w, v)), x)), y
    )
    assert torch.autograd.gradcheck(
        L, [v.clone().requires_grad_() for v in w.values()], eps=1e-6, atol=1e-6
    )
    f = lambda w: L(*w.values())
    many = torch.func.vmap(torch.func.grad(f))(
        tmap(lambda v: torch.stack([v, 3 * v, -v]), w)
    )
    for k in w:
        assert torch.allclose(
            many[k][1], torch.func.grad(f)(tmap(lambda v: 3 * v, w))[k], atol=1e-9
        )
    count = sum(v.numel() for v in w.values())
    assert count == (
        2 * 6 * 6 + 2 * 6
        if isinstance(net, Adapter)
        else 3 * 8 * (3 if net.class_specific else 1)
    )
    want = torch.func.grad(lambda w: net.aligned(w, x).square().sum(0).max())(w)
    assert net.aligned(w, x).shape == ((5, 6) if isinstance(net, Adapter) else (3, 6))
    assert set(want) == set(w)


def test_adapter_without_second_layer_is_zero_shot():
    net = nets()[0]
    w, x = (
        net.init(0, torch.float64),
        torch.randn(
            50, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
        ),
    )
    flat = w | {k: torch.zeros_like(w[k]) for k in ("two.weight", "two.bias")}
    assert torch.allclose(net.out(flat, net.feat(flat, x)), net.zero_shot(x), atol=1e-9)
    assert not torch.allclose(net.out(w, net.feat(w, x)), net.zero_shot(x), atol=1e-3)
    assert torch.equal(net.zero_shot(x), nets()[1].zero_shot(x))
    sentences = [f"a picture of {c} ." for c in NAMES[:3]]
    assert torch.allclose(
        net.text,
        F.normalize(net.towers.encode_text(net.towers.tokenize(sentences)), dim=-1),
    )


@pytest.mark.parametrize("own", [False, True])
def test_prompt_of_a_sentence_is_that_sentence(own):
    model = towers()
    net = Prompts(6, 2, NAMES[:2], model, ctx_init="a photo of the", class_specific=own)
    want = model.encode_text(
        model.tokenize([f"a photo of the {c}." for c in NAMES[:2]])
    )
    w = net.init(0)
    assert w["ctx"].shape == ((2, 4, 8) if own else (4, 8))
    assert torch.allclose(net.texts(w), F.normalize(want, dim=-1), atol=1e-6)
    w["ctx"] += 1
    # a fresh copy, never the towers' own tensor
    assert torch.equal(net.init(1)["ctx"] + 1, w["ctx"])
