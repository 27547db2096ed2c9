"""params.yaml and studies.yaml with a mistake: refused by the file, the place and the
value, at whatever tier it hides."""

import textwrap

import yaml
from toys_input import all_refused, refused

from fedlib.study import TIERS, studies

GOOD = """\
tier: tiny
toy:
  tasks:
    digits:
      data: {name: digits}
      partition: {name: dirichlet, clients: 4, alpha: 1}
      network: {name: MLP, hidden: 8}
      batch: 32
      parts: [0.8, 0.1, 0.1]
      train: {lr: 1e-01, epochs: 1}
      run: {rounds: 2, cohort: 2, every: 1, splits: [test], how: vmap}
      small: {run: {rounds: 9}}
    other: {like: digits, batch: null, network: {hidden: 5}}
  studies:
    book:
      main:
        title: A study
        tasks: [digits, other]
        seeds: {tiny: 1, small: 2, paper: 2}
        microscope: false
        logs: [weight]
        without: {FedProx: [other]}
        look: {Local: [post, personal]}
        methods:
          FedAvg: {}
          FedProx: {mu: [0.1, 1]}
          FedGA: [{alpha: {tiny: 2, small: 3, paper: 3}}, {alpha: 5, theta: .inf}]
          Ditto: {lam: {digits: 0.5, other: 1}}
"""
T, R, S = "toy.tasks.digits", "toy.tasks.digits.run", "toy.studies.book.main"
M = f"{S}.methods"
PATHS = f"""\
tier | huge, [tiny], null
{T}.like | [1], othr, digits
{T}.data | digits, {{n: 4}}
{T}.batch | 0, true, 1.5, {{tiny: 8, small: 0, paper: 8}}, {{tiny: 8}}
{T}.parts | [0.8, .nan, 0.1], [0.8, 0.2], 0.8, [2, 0, 0]
{T}.train.lr | true, fast, .nan, -1, -1.0e-9
{R}.rounds | -1, 1.0e+30, [1], x, true, {{grid: []}}, {{grid: [3, x]}}
{R}.every | 0, 1.0e+30, true, {{a: 1}}
{R}.stragglers | 5
{T}.small.run | 5, {{every: 0}}
{S}.tasks | [], digits, [digits, digits], [digit], {{digits: {{batch: x}}}}
{S}.small | {{tasks: {{}}}}, {{seeds: -1}}, {{every: 0}}
{S}.paper | {{tasks: [digit]}}, {{methods: {{FedAvgg: {{}}}}}}
{S}.seeds | -1, abc, true, 1.5, {{tiny: 1}}, {{tiny: 1, small: -1, paper: 1}}
{M}.FedAvg | 0, [], [1], [{{}}, {{}}], {{l: 1}}, {{task: 1}}, {{rule: Medan}}
{M}.FedAvg.lr | true, [], [0.1, .nan], {{tiny: 0.1}}, {{digts: 0.1}}
"""  # place | wrong values; the last word of the place has to be in the message
TEXTS = (  # (text, *what is named)
    *(("",), ("- tier\n",), ("tier: [\n",), ("tier: tiny\n\ttoy: {}\n",)),
    (GOOD.replace("batch: 32", "batch: 32\n      batch: 16"), "line 7", "batch"),
    (GOOD.replace("{lr: 1e-01, epochs: 1}", "{lr: 0.1, lr: 0.2}"), "line 8", "lr"),
    (GOOD.replace("other: {like", "no: {like"), "tasks"),
    (GOOD.replace("{like: digits", "{like: other"), "other"),
)


def cells(folder, text, **more):
    path, file = folder / "params.yaml", folder / "papers/toy/studies.yaml"
    top, _, toy = text.partition("toy:\n")
    path.write_text(top)
    if toy:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(toy))
    return studies.cells("toy", "main", path, **more)[0]


def at_all_tiers(folder, text, **more):
    for tier in [None, *TIERS]:
        cells(folder, text, **{"tier": tier} | more)


def changed(place, value):
    """GOOD with a value at a place."""
    tree = at = yaml.safe_load(GOOD.replace("1e-01", "0.1"))
    *above, last = place.split(".")
    for k in above:
        if not isinstance(at.get(k), dict):
            at[k] = {}
        at = at[k]
    at[last] = value
    return yaml.safe_dump(tree, sort_keys=False)


def test_a_good_file_is_what_it_says(tmp_path):
    assert len(cells(tmp_path, GOOD)) == 10
    assert len(cells(tmp_path, GOOD, tier="small")) == 20
    toy = studies.load(tmp_path / "params.yaml")["toy"]
    digits, other = toy["tasks"]["digits"], toy["tasks"]["other"]
    assert digits["train"]["lr"] == 0.1 and "batch" not in other
    own = {"network": {"name": "MLP", "hidden": 5}}
    assert other == {k: v for k, v in digits.items() if k != "batch"} | own
    at = {t: studies.tiered(digits, t)["run"] for t in ("tiny", "small")}
    assert at["tiny"] == digits["run"] and at["small"] == {"rounds": 9}
    tiers = {"a": {"tiny": 1, "small": 2, "paper": 3}}
    assert studies.tiered({"b": tiers}, "small") == {"b": {"a": 2}}
    new = studies.merged({"a": {"name": "x", "n": 1}, "b": 1}, {"a": {"name": "y"}})
    assert new == {"a": {"name": "y"}, "b": 1}
    assert cells(tmp_path, GOOD, every=2)[0].engine.count('"every": 2')


def test_a_wrong_value_is_refused_by_its_place(tmp_path):
    rows, file = [], str(tmp_path)
    act = lambda text, **k: lambda: at_all_tiers(tmp_path, text, **k)
    for line in PATHS.splitlines():
        place, values = line.split(" | ")
        for v in yaml.safe_load(f"[{values}]"):
            name = place.rpartition(".")[2]
            rows.append((f"{place} = {v!r}", act(changed(place, v)), file, name))
    rows += [(text[:300], act(text), file, *names) for text, *names in TEXTS]
    options = {"tier": "huge", "every": 0, "rounds": "ten", "seeds": -1, "roundss": 5}
    rows += [(k, act(GOOD, **{k: v}), k) for k, v in options.items()]
    all_refused(rows)


def test_a_knob_is_checked_where_it_is_used(tmp_path):
    file = tmp_path / "papers/toy/studies.yaml"
    file.parent.mkdir(parents=True)
    body = yaml.safe_load(changed(f"{S}.seeds", "$n"))["toy"]
    file.write_text(yaml.safe_dump(body))
    assert len(cells(tmp_path, "tier: tiny\ntoy: {n: 3}\n")) == 30
    bad = [("{n: {tiny: 1, small: -1, paper: 1}}", file, "seeds", "small", -1)]
    bad += [("{n: $m}", file, "$m"), ("{}", "$n", file)]
    for section, *names in bad:
        text = f"tier: tiny\ntoy: {section}\n"
        refused(lambda text=text: at_all_tiers(tmp_path, text), *names)
