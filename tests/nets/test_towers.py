"""Two towers: the stand-in for CLIP, open_clip, and the networks beside them."""

import json
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from toys_clip import NAMES, towers

from fedlib.core.tree import tmap
from fedlib.data import tasks
from fedlib.data.glyphs import glyphs
from fedlib.data.images import features
from fedlib.nets import CNN
from fedlib.nets.clip import Adapter, Prompts
from fedlib.nets.layers import ensure_torchvision
from fedlib.nets.towers import StandIn, TextTower, label, load
from repro import papers

ensure_torchvision()  # without it torchvision cannot be imported beside a CPU torch
standin = papers.module("fft-gp", "standin")
QUICK = standin.Recipe(150, 1, classes=20, batch=64, fresh=20)
T = torch.float64


@pytest.fixture(scope="module")
def trained():
    return standin.train(QUICK)


def test_text_tower_is_torchs_transformer():
    """Layer by layer nn.TransformerEncoderLayer with a causal mask, read at the end."""
    tower = TextTower(30, width=12, heads=3, blocks=2, context=9, d=5)
    g = torch.Generator().manual_seed(0)
    drawn = standin.start(tower, g)
    w = {k: torch.randn(v.shape, generator=g) for k, v in drawn.items()}
    x, end = torch.randn(4, 9, 12, generator=g), torch.tensor([3, 8, 5, 1])
    theirs = {"mix": "self_attn.out_proj.", "norm1": "norm1.", "norm2": "norm2."}
    theirs |= {"up": "linear1.", "down": "linear2.", "qkv": "self_attn.in_proj_"}
    z, how = x + w["text.places"], dict(batch_first=True, norm_first=True)
    for k in range(2):
        layer = nn.TransformerEncoderLayer(12, 3, 48, 0.0, F.gelu, **how).eval()
        for name, to in theirs.items():
            for leaf in ("weight", "bias"):
                own = {f"{to}{leaf}": w[f"text.{k}.{name}.{leaf}"]}
                layer.load_state_dict(own, strict=False)
        z = layer(z, src_mask=nn.Transformer.generate_square_subsequent_mask(9))
    both = lambda n: [w[f"text.{n}.{leaf}"] for leaf in ("weight", "bias")]
    norm, project = both("norm"), both("project")
    want = F.linear(F.layer_norm(z[torch.arange(4), end], (12,), *norm), *project)
    assert torch.allclose(tower(w, x, end), want, rtol=1e-4, atol=1e-4)
    after = x[:1].index_fill(1, torch.tensor([4, 8]), 9.0)
    assert torch.equal(tower(w, after, end[:1]), tower(w, x[:1], end[:1]))


def test_tokens_and_towers():
    model, x = towers(), torch.rand(3, 3, 16, 16)
    got = model.tokenize(["a picture of Latin Capital Letter A .", "greater-than."])
    said = [" ".join(model.words[i] for i in row[row > 0]) for row in got]
    first = "<start> a picture of latin capital letter a . <end>"
    assert said == [first, "<start> greater-than . <end>"]
    assert model.end(got).tolist() == [9, 3] and model.words[0] == "<pad>"
    with pytest.raises(ValueError, match="zebra"):
        model.tokenize(["a picture of zebra ."])
    image = {k[6:]: v for k, v in model.weights.items() if k.startswith("image.")}
    net, seen = CNN(3, 64, widths=(32, 64)), (x - 0.5) / 0.25
    assert torch.allclose(model.preprocess(x), seen)
    wide = torch.cat([x[..., :4], x, x[..., :5]], 3)  # the middle is cut out
    assert torch.allclose(model.preprocess(wide), seen)
    want = net.out(image, net.feat(image, seen))
    assert torch.allclose(model.encode_image(seen), want, atol=1e-6)
    t = model.tokenize(["a photo of the latin small letter b .", "x x x"])
    embedded = model.token_embedding(t)
    one = model.encode_text_from_embeddings(embedded[:1], model.end(t[:1]))
    assert torch.allclose(model.encode_text(t)[:1], one, atol=1e-6)
    assert model.logit_scale == pytest.approx(5) and model.kind == "stand-in"
    warm = StandIn(model.weights | {"scale": torch.tensor(9.0)}, model.words, 16)
    assert warm.logit_scale == 100


def test_training_is_a_function_of_the_recipe(trained, tmp_path):
    a, b = tmp_path / "deeper/a.pt", tmp_path / "b.pt"
    standin.save(trained, a)
    standin.save(standin.train(QUICK), b)
    assert a.read_bytes() == b.read_bytes()
    got = load(b)
    assert got is load(str(b)) and got.words == trained.words
    assert got.recipe == trained.recipe and got.zero_shot == trained.zero_shot
    assert all(torch.equal(v, trained.weights[k]) for k, v in got.weights.items())
    other = standin.train(replace(QUICK, seed=1))
    assert not torch.equal(other.weights["text.words"], got.weights["text.words"])
    standin.save(other, b)
    assert torch.equal(load(b).weights["scale"], other.weights["scale"])


def test_features(trained):
    spec = {"name": "glyphs", "n": 30, "classes": 5, "size": 20}
    spec = {"name": "features", "data": spec, "model": trained, "chunk": 7}
    pool, images = tasks.pool_of(spec), glyphs(30, 5, size=20)
    shrunk = F.interpolate(images.x, size=(16, 16), mode="bilinear", antialias=True)
    want = trained.encode_image((shrunk.clamp(0, 1) - 0.5) / 0.25)
    assert torch.allclose(pool.x, want, atol=1e-5) and not pool.x.requires_grad
    assert torch.equal(pool.y, images.y) and torch.equal(pool.owner, images.owner)
    assert pool.owners == images.owners and pool.kind == "stand-in"
    grey = images._replace(x=torch.rand(4, 1, 16, 16), y=images.y[:4])
    three = grey._replace(x=grey.x.expand(-1, 3, -1, -1))
    assert torch.allclose(features(grey, trained).x, features(three, trained).x)


@pytest.mark.parametrize("kind", ["CLIP", "CustomTextCLIP"])
def test_open_clip_is_the_oracle(kind, tmp_path):
    """A tiny model of random weights, read from a folder."""
    open_clip = pytest.importorskip("open_clip")
    image = {"image_size": 32, "layers": 1, "width": 16, "patch_size": 16}
    text = {"context_length": 24, "vocab_size": 49408, "width": 16, "heads": 2}
    config = {"embed_dim": 8, "vision_cfg": image | {"head_width": 8}}
    config |= {"text_cfg": text | {"layers": 2}, "custom_text": kind != "CLIP"}
    mean, std = torch.tensor([0.5, 0.4, 0.3]), torch.tensor([0.2, 0.25, 0.3])
    how = {"mean": mean.tolist(), "std": std.tolist()}
    about = json.dumps({"model_cfg": config, "preprocess_cfg": how})
    (tmp_path / "open_clip_config.json").write_text(about)
    torch.manual_seed(0)
    theirs = open_clip.create_model(f"local-dir:{tmp_path}").eval()
    with torch.no_grad():
        for v in theirs.parameters():
            v.add_(0.05 * torch.randn(v.shape))
    torch.save(theirs.state_dict(), tmp_path / "open_clip_pytorch_model.bin")
    ours, sentences = load(tmp_path), ["a photo of a cat", "two dogs and a long horse"]
    t = ours.tokenize(sentences)
    assert torch.equal(t, open_clip.get_tokenizer(f"local-dir:{tmp_path}")(sentences))
    want = theirs.encode_text(t).detach()
    assert torch.allclose(ours.encode_text(t), want, atol=1e-6)
    embedded = ours.encode_text_from_embeddings(ours.token_embedding(t), ours.end(t))
    assert torch.allclose(embedded, want, atol=1e-5)
    x = torch.rand(2, 3, 32, 32)
    seen = (x - mean.view(3, 1, 1)) / std.view(3, 1, 1)
    assert torch.allclose(ours.preprocess(x), seen, atol=1e-6)
    want = theirs.encode_image(seen).detach()
    assert torch.allclose(ours.encode_image(seen), want, atol=1e-6)
    assert (ours.d, ours.width, ours.image_size, ours.kind) == (8, 16, 32, "real")
    assert ours.logit_scale == pytest.approx(theirs.logit_scale.exp().item())
    assert not any(v.requires_grad for v in ours.model.parameters())


def nets():
    more = 6, 3, NAMES[:3], towers(6)
    own = Prompts(*more, M=3, class_specific=True)
    return {"adapter": Adapter(*more), "prompts": Prompts(*more, M=3), "own": own}


@pytest.mark.parametrize("name", ["adapter", "prompts", "own"])
def test_network_beside_the_towers(name):
    net, g = nets()[name], torch.Generator().manual_seed(1)
    w, x = net.init(2, T), torch.randn(5, 6, generator=g, dtype=T)
    assert [n for layer in net.layers for n in layer] == list(w) and net.head == ()
    z = net.feat(w, x)
    gate = torch.ones_like(x)
    if name == "adapter":
        one, a, two, b = w.values()
        gate = F.softmax(torch.tanh(x @ one.T + a) @ two.T + b, dim=1)
    else:
        assert abs(float(w["ctx"].std()) - 0.02) < 0.01
        assert not torch.equal(w["ctx"], net.init(3, T)["ctx"])
    assert torch.allclose(z, F.normalize(x * gate))
    t = net.text.double() if name == "adapter" else net.texts(w)
    want = 5 * F.cosine_similarity(z[:, None], t[None], dim=-1)
    assert torch.allclose(net.out(w, z), want, atol=1e-6)
    y = torch.tensor([0, 2, 1, 1, 0])
    f = lambda w: F.cross_entropy(net.out(w, net.feat(w, x)), y)
    leaves = [v.clone().requires_grad_() for v in w.values()]
    of = lambda *v: f(dict(zip(w, v)))
    assert torch.autograd.gradcheck(of, leaves, eps=1e-6, atol=1e-6)
    many = torch.func.vmap(torch.func.grad(f))(tmap(lambda v: torch.stack([v, -v]), w))
    one = torch.func.grad(f)(tmap(torch.neg, w))
    assert all(torch.allclose(many[k][1], one[k], atol=1e-9) for k in w)
    size = {"adapter": 2 * 6 * 6 + 2 * 6, "prompts": 3 * 8, "own": 3 * 8 * 3}[name]
    assert sum(v.numel() for v in w.values()) == size
    assert name == "adapter" or net.aligned(w, x).shape == (3, 6)


def test_without_a_second_layer_is_zero_shot_and_a_prompt_is_its_sentence():
    net, model = nets()["adapter"], towers()
    g = torch.Generator().manual_seed(0)
    w, x = net.init(0, T), torch.randn(50, 6, dtype=T, generator=g)
    flat = w | {k: torch.zeros_like(w[k]) for k in ("two.weight", "two.bias")}
    assert torch.allclose(net.out(flat, net.feat(flat, x)), net.zero_shot(x), atol=1e-9)
    assert not torch.allclose(net.out(w, net.feat(w, x)), net.zero_shot(x), atol=1e-3)
    assert torch.equal(net.zero_shot(x), nets()["prompts"].zero_shot(x))
    encoded = lambda s: F.normalize(model.encode_text(model.tokenize(s)), dim=-1)
    assert torch.allclose(net.text, encoded([f"a picture of {c} ." for c in NAMES[:3]]))
    want = encoded([f"a photo of the {c}." for c in NAMES[:2]])
    assert label("Alarm_Clock") == "Alarm Clock"
    for own in (False, True):
        more = {"ctx_init": "a photo of the", "class_specific": own}
        net = Prompts(6, 2, NAMES[:2], model, **more)
        w = net.init(0)
        assert w["ctx"].shape == ((2, 4, 8) if own else (4, 8))
        assert torch.allclose(net.texts(w), want, atol=1e-6)
        w["ctx"] += 1  # a fresh copy, never the towers' own tensor
        assert torch.equal(net.init(1)["ctx"] + 1, w["ctx"])
