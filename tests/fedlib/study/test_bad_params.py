"""params.yaml with a mistake: a ValueError that names the place, the value and what to
give instead, whichever tier is asked for; never a traceback of ours.
"""

import copy
import random

import pytest
import yaml

from fedlib.study import studies

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
      train: {lr: 0.1, epochs: 1}
      run: {rounds: 2, cohort: 2, every: 1, splits: [test], how: vmap}
      small: {run: {rounds: 9}}
    other: {like: digits}
  studies:
    book:
      main:
        title: A study
        tasks: [digits, other]
        seeds: {tiny: 1, small: 2, paper: 2}
        microscope: false
        logs: {weight: 1}
        without: {FedProx: [other]}
        look: {Local: [post, personal]}
        methods:
          FedAvg: {}
          FedProx: {mu: [0.1, 1]}
          FedGA: [{alpha: {tiny: 2, small: 3, paper: 3}}, {alpha: 5, theta: .inf}]
          Ditto: {lam: {digits: 0.5, other: 1}}
"""
STUDY = ("toy", "studies", "book", "main")
TASK = ("toy", "tasks", "digits")
RUN, PARTITION, DATA, NETWORK = (
    (*TASK, k) for k in ("run", "partition", "data", "network")
)


def cells(tmp_path, text, **more):
    path = tmp_path / "params.yaml"
    path.write_text(text)
    return studies.cells("toy", "main", path, **more)[0]


def changed(place, value):
    """GOOD with a value at a place, as text."""
    tree = yaml.safe_load(GOOD)
    *above, last = place
    at = tree
    for k in above:
        at = at.setdefault(k, {})
    at[last] = value
    return yaml.safe_dump(tree, sort_keys=False)


def test_the_good_file_plans_its_runs(tmp_path):
    assert len(cells(tmp_path, GOOD)) == 10
    assert len(cells(tmp_path, GOOD, tier="small")) == 20
    assert [c.engine for c in cells(tmp_path, GOOD, every=2)][0].count('"every": 2')


NAN, INF = float("nan"), float("inf")
VALUES = [  # (place, value, what the message says)
    # files and sections
    (("tier",), "huge", "tier = 'huge': give one of tiny"),
    (("tier",), ["tiny"], "tier = ['tiny']: give one of tiny"),
    (("toy",), 5, "unknown key 'toy' (known: tier)"),
    (("toy", "tasks"), [1], "toy: tasks = [1]: give entries, as"),
    (("toy", "tasks"), 0, "toy: tasks = 0: give entries, as"),
    (("toy", "tasks"), "digits", "toy: tasks = 'digits': give entries, as"),
    (("toy", "studies"), ["main"], "toy: studies = ['main']: give entries, as"),
    (("toy", "studies", "book"), 5, "studies.book = 5: give entries, as"),
    (STUDY, [1], "studies.book.main is [1]; it needs entries"),
    (TASK, "digits", "tasks.digits = 'digits': give entries, as"),
    ((*TASK, "tiny"), 0, "tasks.digits.tiny is 0; it needs entries"),
    ((*TASK, "tiny"), [1], "tasks.digits.tiny is [1]; it needs entries"),
    ((*TASK, "like"), [1], "like names the task [1]"),
    # a task's parts
    (DATA, "digits", "data = 'digits': give entries, as {name: synthetic"),
    (DATA, ["digits"], "data = ['digits']: give entries, as {name: synthetic"),
    ((*DATA, "name"), "digit", "unknown data 'digit'; did you mean 'digits'?"),
    ((*DATA, "name"), 5, "unknown data 5 (known: synthetic"),
    ((*DATA, "name"), [1], "unknown data [1] (known: synthetic"),
    (DATA, {}, "data = {}: give a name and what it takes"),
    (PARTITION, 5, "partition = 5: give entries, as {name: natural"),
    ((*PARTITION, "name"), "diriclet", "did you mean 'dirichlet'?"),
    (NETWORK, "MLP", "network = 'MLP': give entries, as {name:"),
    ((*NETWORK, "name"), "MPL", "unknown network 'MPL'; did you mean 'MLP'?"),
    ((*TASK, "small", "network"), {"name": 3}, "small.network.name: unknown network 3"),
    ((*TASK, "batch"), 0, "batch = 0: give a whole number >= 1 of rows"),
    ((*TASK, "batch"), True, "batch = True: give a whole number >= 1 of rows"),
    ((*TASK, "batch"), 1.5, "batch = 1.5: give a whole number >= 1 of rows"),
    ((*TASK, "batch"), {"tiny": 8, "small": 0, "paper": 8}, "batch.small = 0: give a"),
    ((*TASK, "parts"), [0.8, NAN, 0.1], "parts = [0.8, nan, 0.1]: give three shares"),
    ((*TASK, "small", "parts"), [0.8, NAN, 0.1], "small.parts = [0.8, nan, 0.1]"),
    ((*TASK, "parts"), [0.8, 0.2], "parts = [0.8, 0.2]: give three shares"),
    ((*TASK, "parts"), 0.8, "parts = 0.8: give three shares"),
    ((*TASK, "parts"), [0.8, True, 0.1], "parts = [0.8, True, 0.1]: give three"),
    ((*TASK, "standard"), "yes please", "standard = 'yes please': give true, false or"),
    ((*TASK, "standard"), 1, "standard = 1: give true, false or imagenet"),
    ((*TASK, "test"), 5, "test = 5: give {by: labels}, or a list"),
    ((*TASK, "owners"), 5, "owners = 5: give a list of names"),
    ((*TASK, "label"), 5, "label = 5: give a text"),
    ((*TASK, "train"), [0.1], "train = [0.1]: give entries, as {lr: 0.1"),
    ((*TASK, "train"), "lr", "train = 'lr': give entries, as {lr: 0.1"),
    ((*TASK, "train", "lr"), True, "train.lr = True is no number"),
    ((*TASK, "train", "lr"), "fast", "train.lr = 'fast' is no number"),
    ((*TASK, "train", "lr"), NAN, "train.lr = nan is outside [0, inf]"),
    ((*TASK, "train", "lr"), 1e300, "train.lr = 1e+300 is too large"),
    ((*TASK, "train", "epochs"), 1.5, "train.epochs = 1.5 is not a whole number"),
    ((*TASK, "train", "last"), "some", "is not one of 'keep', 'drop'"),
    ((*TASK, "small", "train"), {"lr": -1}, "digits.small.train.lr = -1 is outside"),
    ((*TASK, "train", "lrr"), 0.1, "train: unknown key 'lrr'; did you mean 'lr'?"),
    ((*TASK, "colour"), 1, "tasks.digits: unknown key 'colour'"),
    # what the engine is told
    (RUN, 5, "tasks.digits.run is 5; it needs entries"),
    (RUN, [5], "tasks.digits.run is [5]; it needs entries"),
    (RUN, {}, "run has no rounds; give run: {rounds: 100}"),
    ((*RUN, "rounds"), -1, "run.rounds = -1: give a whole number of rounds"),
    ((*RUN, "rounds"), "ten", "run.rounds = 'ten': give a whole number of rounds"),
    ((*RUN, "rounds"), 1e30, "run.rounds = 1e+30: give a whole number of rounds"),
    ((*RUN, "rounds"), [1, 2], "run.rounds = [1, 2]: give a whole number of rounds"),
    ((*RUN, "rounds"), {"grid": []}, "run.rounds.grid = []: give a list of one"),
    ((*RUN, "rounds"), {"grid": 5}, "run.rounds.grid = 5: give a list of one"),
    ((*RUN, "rounds"), {"grid": [3, "x"]}, "rounds.grid[1] = 'x': give a whole number"),
    ((*RUN, "rounds"), {"grid": [3], "as": 5}, "run.rounds.as = 5: give the name"),
    ((*RUN, "rounds"), {"grid": [3], "called": 5}, "called = 5: give a list"),
    ((*RUN, "rounds"), {"grid": [3], "called": [[]]}, "called = [[]]: give a list of"),
    ((*RUN, "rounds"), {"grid": [3], "called": ["a;b"]}, "give a list of names or"),
    ((*RUN, "every"), 0, "run.every = 0: give a whole number of rounds >= 1"),
    ((*RUN, "every"), 1e30, "run.every = 1e+30: give a whole number of rounds >= 1"),
    ((*RUN, "every"), [1], "run.every = [1]: give a whole number of rounds >= 1"),
    ((*RUN, "every"), {"a": 1}, "run.every = {'a': 1}: give a whole number"),
    ((*RUN, "cohort"), 0, "run.cohort = 0: give a whole number of clients >= 1"),
    ((*RUN, "cohort"), True, "run.cohort = True: give a whole number of clients"),
    ((*RUN, "online"), 0, "run.online = 0: give a share of the clients"),
    ((*RUN, "online"), NAN, "run.online = nan: give a share of the clients"),
    ((*RUN, "stragglers"), 5, "run.stragglers = 5: give {portion: 0.5"),
    ((*RUN, "stragglers"), {"portion": NAN}, "give {portion: 0.5, every: 5"),
    ((*RUN, "stragglers"), {"share": 0.5}, "give {portion: 0.5, every: 5"),
    ((*RUN, "splits"), "test", "run.splits = 'test': give a list of some of test"),
    ((*RUN, "splits"), [], "run.splits = []: give a list of some of test"),
    ((*RUN, "splits"), [["test"]], "give a list of some of test, val, all"),
    ((*RUN, "how"), "quickly", "run.how = 'quickly': give loop, vmap or null"),
    ((*RUN, "how"), ["loop"], "run.how = ['loop']: give loop, vmap or null"),
    ((*RUN, "precision"), "float8", "run.precision = 'float8': give float32"),
    ((*RUN, "own"), "abc", "run.own = 'abc': give true or false"),
    ((*RUN, "guests"), 1, "run.guests = 1: give true or false"),
    ((*TASK, "small", "run"), {"every": 0}, "small.run.every = 0: give a whole number"),
    ((*TASK, "small", "run"), 5, "small.run is 5; it needs entries"),
    ((*RUN, "round"), 5, "unknown key 'round'; did you mean 'rounds'?"),
    # a study
    ((*STUDY, "tasks"), {}, "tasks = {}: give the names of one task or more"),
    ((*STUDY, "tasks"), [], "tasks = []: give the names of one task or more"),
    ((*STUDY, "tasks"), "digits", "tasks = 'digits': give the names of one task"),
    ((*STUDY, "tasks"), 5, "tasks = 5: give the names of one task or more"),
    ((*STUDY, "tasks"), ["digits", "digits"], "names the task 'digits' twice"),
    ((*STUDY, "tasks"), ["digit"], "names the task 'digit'; did you mean 'digits'?"),
    ((*STUDY, "tasks"), [["digits"]], "names the task ['digits']"),
    ((*STUDY, "tasks"), {"digits": 5}, "tasks.digits = 5: give entries"),
    (
        (*STUDY, "tasks"),
        {"digits": {"batch": "x"}},
        "digits.batch = 'x': give a whole",
    ),
    ((*STUDY, "tasks"), {"digits": {"run": {"every": 0}}}, "run.every = 0: give"),
    (
        (*STUDY, "tasks"),
        {"digits": {"rum": {"every": 0}}},
        "'rum'; did you mean 'run'?",
    ),
    ((*STUDY, "small"), {"tasks": {}}, "small.tasks = {}: give the names of one task"),
    ((*STUDY, "seeds"), -1, "seeds = -1; give how many (5)"),
    ((*STUDY, "seeds"), "abc", "seeds = 'abc'; give how many (5)"),
    ((*STUDY, "seeds"), True, "seeds = True; give how many (5)"),
    ((*STUDY, "seeds"), 1.5, "seeds = 1.5; give how many (5)"),
    ((*STUDY, "seeds"), 10**12, "seeds = 1000000000000; give how many (5)"),
    ((*STUDY, "seeds"), {"pilot": 10**12}, "give how many (5)"),
    (
        (*STUDY, "seeds"),
        {"tiny": 1, "small": -1, "paper": 1},
        "seeds.small = -1; give how",
    ),
    ((*STUDY, "tiny"), {"seeds": -1}, "tiny.seeds = -1; give how many (5)"),
    ((*STUDY, "small"), {"seeds": -1}, "small.seeds = -1; give how many (5)"),
    ((*STUDY, "every"), 1e30, "main.every = 1e+30: give a whole number of rounds"),
    ((*STUDY, "small"), {"every": 0}, "small.every = 0: give a whole number of rounds"),
    ((*STUDY, "microscope"), "abc", "main.microscope = 'abc': give true or false"),
    ((*STUDY, "title"), 5, "main.title = 5: give a text"),
    ((*STUDY, "logs"), 5, "main.logs = 5: give entries, as {weight: 0}"),
    ((*STUDY, "logs"), {"weight": "x"}, "logs.weight = 'x': give a whole number"),
    ((*STUDY, "without"), ["FedAvg"], "main.without = ['FedAvg']: give entries"),
    ((*STUDY, "without"), {"FedAvg": 5}, "main.without.FedAvg = 5: give a list"),
    ((*STUDY, "look"), 5, "main.look = 5: give entries"),
    # methods
    ((*STUDY, "methods"), {}, "methods = {}: give one method or more"),
    ((*STUDY, "methods"), ["FedAvg"], "methods = ['FedAvg']: give one method or more"),
    ((*STUDY, "methods"), "FedAvg", "methods = 'FedAvg': give one method or more"),
    ((*STUDY, "methods", "FedAvg"), 0, "methods.FedAvg = 0: give entries"),
    ((*STUDY, "methods", "FedMGDA+"), "", "methods.FedMGDA+ = '': give entries"),
    (
        (*STUDY, "methods", "FedAvg"),
        [],
        "methods.FedAvg = []: give one variant or more",
    ),
    ((*STUDY, "methods", "FedAvg"), [1], "methods.FedAvg[0] = 1: give entries"),
    (
        (*STUDY, "methods", "FedAvg"),
        [{}, {}],
        "FedAvg on digits has the setting '' twice",
    ),
    (
        (*STUDY, "methods", "FedAvgg"),
        {},
        "methods: unknown key 'FedAvgg'; did you mean 'FedAvg'?",
    ),
    ((*STUDY, "methods", "FedAvg"), {"lr": True}, "FedAvg.lr = True is no number"),
    (
        (*STUDY, "methods", "FedAvg"),
        {"lr": []},
        "FedAvg.lr = []: give one value or more",
    ),
    (
        (*STUDY, "methods", "FedAvg"),
        {"lr": [0.1, NAN]},
        "FedAvg.lr[1] = nan is outside",
    ),
    (
        (*STUDY, "methods", "FedAvg"),
        {"l": 1},
        "FedAvg: unknown key 'l'; did you mean 'lr'?",
    ),
    (
        (*STUDY, "methods", "FedAvg"),
        {"task": 1},
        "FedAvg: unknown key 'task' (known: lr, ",
    ),
    ((*STUDY, "methods", "FedAvg"), {"rule": 5}, "FedAvg.rule = 5 is no rule"),
    ((*STUDY, "methods", "FedAvg"), {"rule": "Medan"}, "did you mean 'Median'?"),
    (
        (*STUDY, "methods", "FedAvg"),
        {"step": {"name": "SAM", "rho": -1}},
        "SAM.rho = -1: give a number >= 0",
    ),
    (
        (*STUDY, "methods", "FedAvg"),
        {"lr": {"tiny": 0.1, "small": -1, "paper": 1}},
        "FedAvg.lr.small = -1 is outside",
    ),
    (
        (*STUDY, "methods", "FedAvg"),
        {"lr": {"tiny": 0.1}},
        "has no value for tier small",
    ),
    (
        (*STUDY, "methods", "FedAvg"),
        {"lr": {"digts": 0.1}},
        "did you mean 'digits'?",
    ),
    (
        (*STUDY, "methods", "FedMGDA+"),
        {"server_lr": 1e300},
        "FedMGDA+.server_lr = 1e+300 is too large",
    ),
    ((*STUDY, "methods", "FedGA"), {"theta": -1}, "FedGA.theta = -1: x would have to"),
    ((*STUDY, "methods", "FedGA"), {"alpha": INF}, "FedGA.alpha = inf is too large"),
    (
        (*STUDY, "methods", "Uniform-update"),
        {"inner": "FedAvgg"},
        "did you mean 'FedAvg'?",
    ),
    ((*STUDY, "methods", "Uniform-update"), {"inner": 5}, "inner = 5 is no method"),
]


@pytest.mark.parametrize("place, value, says", VALUES)
def test_a_bad_value_is_refused(tmp_path, place, value, says):
    tier = "small" if "has no value for tier small" in says else "tiny"
    with pytest.raises(ValueError) as e:
        cells(tmp_path, changed(place, value), tier=tier)
    assert says in str(e.value) and str(tmp_path / "params.yaml") in str(e.value)


TEXTS = [  # (text of the file, what the message says)
    ("", "holds None; it needs lines `key: value`"),
    ("# nothing\n", "holds None; it needs lines `key: value`"),
    ("- tier\n", "holds ['tier']; it needs lines `key: value`"),
    ("tier\n", "holds 'tier'; it needs lines `key: value`"),
    ("5\n", "holds 5; it needs lines `key: value`"),
    ("tier: [\n", "is not valid YAML"),
    ("tier: tiny\n\ttoy: {}\n", "is not valid YAML"),
    ("tier: tiny\ntier: small\n", "line 2: the key 'tier' is there already, in line 1"),
    (
        GOOD.replace("batch: 32", "batch: 32\n      batch: 16"),
        "line 9: the key 'batch' is there already, in line 8; take one",
    ),
    (
        GOOD.replace("{lr: 0.1, epochs: 1}", "{lr: 0.1, lr: 0.2}"),
        "the key 'lr' is there already, in line 10",
    ),
    (GOOD + "          FedAvg: {lr: 1}\n", "the key 'FedAvg' is there already"),
    (GOOD.replace("other: {like", "1: {like"), "the key '1' is no text; put it in quo"),
    (GOOD.replace("other: {like", "no: {like"), "the key 'no' is no text; put it in"),
    (GOOD.replace("A study", "2026-01-01"), "'2026-01-01' is read as timestamp; put a"),
    (
        GOOD.replace("A study", "!!binary eHg="),
        "is read as binary; put a text in quotes",
    ),
    (GOOD.replace("A study", "!!python/name:os.system x"), "put a text in quotes"),
    (GOOD.replace("A study", "&a [*a]"), "an alias leads into itself; write it out"),
    (
        GOOD
        + "x: &a [1,1,1,1,1,1,1,1,1,1]\n"
        + "".join(
            f"x{i}: &{b} [{', '.join([f'*{a}'] * 10)}]\n"
            for i, (a, b) in enumerate(zip("abcdefg", "bcdefgh"))
        ),
        "more than 1,000,000 entries, aliases written out",
    ),
    (GOOD + "x: " + "[" * 4000 + "]" * 4000 + "\n", "is not valid YAML"),
]


@pytest.mark.parametrize("text, says", TEXTS)
def test_a_bad_file_is_refused(tmp_path, text, says):
    with pytest.raises(ValueError) as e:
        cells(tmp_path, text)
    assert says in str(e.value) and str(tmp_path / "params.yaml") in str(e.value)


def test_a_file_in_another_encoding_is_refused(tmp_path):
    (tmp_path / "params.yaml").write_bytes(GOOD.encode("utf-16"))
    with pytest.raises(ValueError, match="params.yaml is not valid YAML"):
        studies.cells("toy", "main", tmp_path / "params.yaml")


@pytest.mark.parametrize(
    "more, says",
    [
        ({"tier": "huge"}, "tier = 'huge'; give one of tiny"),
        ({"every": 0}, "main.every = 0: give a whole number of rounds >= 1"),
        ({"rounds": "ten"}, "main.rounds = 'ten': give a whole number of rounds"),
        ({"seeds": -1}, "seeds = -1; give how many (5)"),
        ({"tasks": []}, "tasks = []: give the names of one task or more"),
        ({"roundss": 5}, "unknown key 'roundss'; did you mean 'rounds'?"),
    ],
)
def test_a_bad_change_is_refused(tmp_path, more, says):
    with pytest.raises(ValueError) as e:
        cells(tmp_path, GOOD, **more)
    assert says in str(e.value)


@pytest.mark.parametrize(
    "paper, name", [("tier", "main"), ("toyy", "main"), ("toy", "m")]
)
def test_an_unknown_study_is_refused(tmp_path, paper, name):
    (tmp_path / "params.yaml").write_text(GOOD)
    with pytest.raises(ValueError, match="there are"):
        studies.cells(paper, name, tmp_path / "params.yaml")


def test_a_knob_that_is_no_section_is_refused(tmp_path):
    (tmp_path / "papers" / "toy").mkdir(parents=True)
    body = yaml.safe_load(GOOD)["toy"]
    (tmp_path / "papers" / "toy" / "studies.yaml").write_text(yaml.safe_dump(body))
    with pytest.raises(ValueError, match="toy = 5: give the knobs of .*studies.yaml"):
        cells(tmp_path, "tier: tiny\ntoy: 5\n")


def test_parts_that_a_tier_hides_are_looked_at(tmp_path):
    """In a tier, a task and a method that the study at this tier does not have."""
    hidden = [
        (("toy", "studies", "book", "main", "without"), {"FedProxx": []}, "'FedProx'?"),
        ((*STUDY, "paper"), {"methods": {"FedAvg": {"lr": {"tiny": 1}}}}, "tier small"),
        ((*STUDY, "paper"), {"methods": {"FedGA": {"theta": -1}}}, "theta = -1"),
        ((*STUDY, "paper"), {"tasks": ["digit"]}, "did you mean 'digits'?"),
        ((*STUDY, "paper"), {"methods": {"FedAvgg": {}}}, "did you mean 'FedAvg'?"),
        ((*TASK, "paper"), {"data": {"name": "glyphs", "size": "a"}}, "size = 'a'"),
        ((*TASK, "paper"), {"data": {"name": "glyphs", "sise": 8}}, "mean 'size'?"),
        ((*TASK, "paper"), {"data": {"n": 100}}, "give a name and what it takes"),
        ((*TASK, "paper"), {"run": {"every": 1}}, "run has no rounds"),
    ]
    for place, value, says in hidden:
        with pytest.raises(ValueError) as e:
            cells(tmp_path, changed(place, value))
        assert says in str(e.value) and str(tmp_path) in str(e.value)


def test_a_mistake_in_a_knob_is_placed_where_the_knob_is(tmp_path):
    (tmp_path / "papers" / "toy").mkdir(parents=True)
    body = yaml.safe_load(GOOD)["toy"]
    body["studies"]["book"]["main"]["seeds"] = "$n"
    (tmp_path / "papers" / "toy" / "studies.yaml").write_text(yaml.safe_dump(body))
    with pytest.raises(ValueError, match="params.yaml: toy: n.small = -1; give how"):
        cells(tmp_path, "tier: tiny\ntoy: {n: {tiny: 1, small: -1, paper: 1}}\n")
    with pytest.raises(ValueError, match="a knob is no other knob"):
        cells(tmp_path, "tier: tiny\ntoy: {n: $m}\n")


# ---------------------------------------------------------------- fuzz
ODD = (
    *(None, True, 0, -1, 1.5, NAN, INF, -INF, 1e30, 10**12, "", "abc", "1e30", "$x"),
    *("tiny", "digits", [], {}, [1], [NAN], {"a": 1}, {"grid": []}, {"grid": [1, "x"]}),
    *({"name": 5}, {"name": "SAM"}, {"tiny": 1}, {"tiny": 1, "small": [], "paper": {}}),
    *([[]], [{}], {"tiny": {}}, {"grid": {"tiny": [1]}}, {"pilot": -1}, {1: 2}),
    *({"grid": [1], "as": []}, {"name": {"grid": ["ring"]}}, {"digits": {}}),
)


def places(tree, at=()):
    """Where a value can be changed."""
    out = [at] if at else []
    items = tree.items() if isinstance(tree, dict) else ()
    items = enumerate(tree) if isinstance(tree, list) else items
    for k, v in items:
        out += places(v, (*at, k))
    return out


def mutated(rng):
    """GOOD with one to three changes: a value replaced, taken away, moved, or a letter
    of the text changed."""
    tree = yaml.safe_load(GOOD)
    for _ in range(rng.randint(1, 3)):
        if not tree:
            break
        *above, last = rng.choice(places(tree))
        at = tree
        for k in above:
            at = at[k]
        how = rng.random()
        if how < 0.6:
            at[last] = copy.deepcopy(rng.choice(ODD))
        elif how < 0.75:
            del at[last]
        elif isinstance(at, dict):
            key = rng.choice(["every", "grid", "tiny", "name", "x", *at])
            at[key] = copy.deepcopy(at[last])
    text = yaml.safe_dump(tree, sort_keys=False)
    if rng.random() < 0.2:
        k = rng.randrange(len(text))
        text = text[:k] + rng.choice("[]{}:-&*!|>'\"#%@\t\n0x") + text[k + 1 :]
    return text


@pytest.mark.parametrize("seed", range(4))
def test_fuzz_only_our_own_errors_arise(tmp_path, seed):
    """50 files: each is planned, or refused by a ValueError that names the file."""
    rng, refused = random.Random(seed), 0
    for _ in range(50):
        text, tier = mutated(rng), rng.choice(["tiny", "small", "paper"])
        try:
            cells(tmp_path, text, tier=tier)
        except ValueError as e:
            refused += 1
            assert "params.yaml" in str(e) and len(str(e)) < 3000, (text, e)
        except Exception as e:
            raise AssertionError(f"{tier}\n{text}\n{e!r}") from e
    assert refused > 25
