"""Studies as tidy frames hold the numbers of the studies' arrays and tables."""

import numpy as np
import pytest

from fedlib.core.record import Record
from fedlib.measures import metrics, selection
from fedlib.study import frames, results
from fedlib.study.studies import Cell

ROUNDS, CLIENTS = np.array([0, 2, 4]), 7
KEYS = [("pre", "global", s) for s in ("test", "val")]
TRAINED = [("post", "personal", s) for s in ("test", "val")]
LOOK = {"FedPer": ["post", "personal"]}
WHO = ["dataset", "method", "setting", "seed"]


def record(method, seed, keys, guests=()):
    rng = np.random.default_rng([seed, len(method)])
    rows = {s: [5 + i for i in range(CLIENTS)] for s in ("train", "val", "test")}
    meta = {"method": method, "n": rows | ({"guest": guests} if guests else {})}
    meta |= {"device": "cpu", "seconds": 60.0, "commit": "", "owners": ["site"] * 7}
    views = {}
    for k in keys:
        E = len(ROUNDS) - (k[0] == "post")
        C = len(guests) if k[0] == "guest" else CLIENTS
        views[k] = rng.integers(0, 9, (E, C)).astype(np.float32) / 8
    # in the second round one of the cohort is missing
    logs = {"cohort": np.array([[1, 3], [2, -1]]), "on": np.array([0.0, 1.0])}
    logs["weight"] = np.array([[0.4, 0.6], [1.0, np.nan]])
    return Record(meta, ROUNDS, views, logs)


@pytest.fixture
def run(monkeypatch):
    monkeypatch.setattr(Cell, "id", "a run")  # names of runs are tested elsewhere
    given = [("FedAvg", s, KEYS) for s in (0, 1)]
    given += [("FedPer", s, KEYS + TRAINED) for s in (0, 1)]
    cells = [
        Cell("digits", "digits", m, "", s, "real", "{}", "{}", "{}")
        for m, s, _ in given
    ]
    spec = {"look": LOOK}
    records = [record(*x) for x in given]
    return results.Study("toy", "main", "tiny", spec, cells, records, ["tiny"] * 4)


@pytest.mark.parametrize("method", ["FedAvg", "FedPer"])
@pytest.mark.parametrize("split", ["test", "val"])
def test_a_frame_has_every_number_of_the_stack(run, method, split):
    d = frames.frame(run, split=split).query("method == @method")
    wide = d.pivot(index=["seed", "round"], columns="client", values="acc")
    want = run.stack("digits", method, split=split)
    assert np.array_equal(wide, 100 * want.reshape(-1, CLIENTS).astype(float))
    assert set(d.n) == set(run.records[0].meta["n"][split])
    assert list(d) == [
        *(*WHO, "moment", "view", "split"),
        *("round", "client", "n", "acc"),
    ]


def test_after_training_one_more_round_is_trained(run):
    """As in `Study.curve`, so that both kinds of curves stand in one figure."""
    d = frames.frame(run)
    for m in ("FedAvg", "FedPer"):
        x, y = run.curve("digits", m)
        of = d[d.method == m]
        assert sorted(set(of["round"])) == list(x)
        right = (of.acc * of.n).groupby([of.seed, of["round"]]).sum()
        rows = of.n.groupby([of.seed, of["round"]]).sum()
        assert np.allclose((right / rows).unstack(), y)


@pytest.mark.parametrize("rule", selection.RULES)
def test_scores_are_the_seeds_of_the_study(run, rule):
    long = run.seeds(rules=(rule,)).query("not metric.str.startswith('acc_')")
    want = long.pivot(index=WHO, columns="metric", values="value")
    got = frames.scores(run, rule).set_index(WHO)[list(want)]
    assert got.equals(want.loc[got.index]) and len(got) == 4
    assert not got.columns.difference(list(results.MEASURES)).size


@pytest.mark.parametrize("rule", ["last", "last10_mean", "best_val"])
def test_a_rule_leaves_its_rounds(run, rule):
    d = frames.frame(run, at=rule)
    mean = d.groupby(["method", "seed"]).acc.mean()
    want = frames.scores(run, rule).set_index(["method", "seed"]).mean_acc
    assert np.allclose(mean, want[mean.index])
    assert len(d) < len(frames.frame(run))


def test_rounds_are_measures_of_the_stack(run):
    d = frames.rounds(run, {"gini": metrics.gini, "top1": metrics.pooled_acc})
    for m in ("FedAvg", "FedPer"):
        want = metrics.gini(run.stack("digits", m)).ravel()
        assert np.array_equal(d[d.method == m].gini, want)
    n = np.array(run.records[0].meta["n"]["test"])
    want = metrics.pooled_acc(run.stack("digits", "FedAvg"), n).ravel()
    assert np.array_equal(d[d.method == "FedAvg"].top1, want)


def test_every_view_or_a_named_one(run):
    looks = ["moment", "view", "split"]
    everything = frames.frame(run, view=None, moment=None, split=None)
    assert {tuple(k) for k in everything[looks].values} == {*KEYS, *TRAINED}
    named = frames.scores(run, view="global", moment="pre")
    assert len(named) == 4 and set(named.view) == {"global"}


def test_guests_have_rows_of_their_own_and_one_has_no_spread(run):
    guest = ("guest", "global", "test")
    run.records[:] = [
        record(c.method, c.seed, [*KEYS, guest], guests=[9]) for c in run.cells
    ]
    d = frames.frame(run, view="global", moment="guest")
    assert set(d.n) == {9} and set(d.client) == {0} and len(d) == 4 * len(ROUNDS)
    seeds = run.seeds(rules=("best_val",), scored=("guest", "global"))
    got = frames.scores(run, moment="guest", view="global")
    assert np.array_equal(got.mean_acc, seeds[seeds.metric == "mean_acc"].value)
    assert "std_acc" not in got


def count_groups(run):
    """Counts of groups, outcomes and predictions in every record, and neighbours."""
    rng = np.random.default_rng(0)
    for r in run.records:
        for key, a in r.views.items():
            r.cells[key] = rng.integers(0, 9, (*a.shape, 2, 2, 2))
            r.consistency[key[:2]] = rng.integers(1, 9, (*a.shape, 2))


@pytest.mark.parametrize("rule", ["last", "last10_mean"])
def test_biases_by_round_average_to_those_of_the_study(run, rule):
    count_groups(run)
    run.records[0].cells["pre", "global", "test"][-1, :, 0, 1] = 0  # EO is NaN
    long = run.biases((rule,)).pivot(index=WHO, columns="metric", values="value")
    d = frames.biases(run, at=rule).drop(columns="round").set_index(WHO)
    got = d.groupby(level=WHO).agg(lambda v: v.mean(skipna=False))
    assert np.allclose(got, long.loc[got.index, got.columns], equal_nan=True)
    assert got.EO.isna().any()


def test_biases_have_a_row_for_each_run_and_evaluation(run):
    count_groups(run)
    d = frames.biases(run)
    scores = ["EO", "DP", "CAL", "CON", "accuracy", "positive_rate"]
    assert list(d) == [*WHO, "round", *scores]
    of = d.query("method == 'FedPer' and seed == 1")
    n = run.of(method="FedPer", seed=1)[0][1].cells["post", "personal", "test"]
    yes = n.sum((1, 2, 3))  # [E, 2], by prediction
    assert np.array_equal(of["round"], ROUNDS[:2] + 1)
    assert np.allclose(of.positive_rate, yes[:, 1] / yes.sum(1))


def test_logs_have_a_row_for_each_client_of_the_cohort(run):
    d = frames.logs(run, "weight").query("method == 'FedAvg' and seed == 0")
    assert list(d) == [*WHO, "round", "client", "weight"]
    rows = d[["round", "client", "weight"]].values.tolist()
    assert rows == [[0, 1, 0.4], [0, 3, 0.6], [1, 2, 1.0]]


def test_what_is_logged_once_in_a_round_has_no_client(run):
    for r in run.records:
        del r.logs["cohort"]  # not every study keeps it
    d = frames.logs(run, "on").query("method == 'FedPer'")
    assert list(d) == [*WHO, "round", "on"]
    want = run.log("digits", "FedPer", "on")
    assert np.array_equal(d.on.to_numpy().reshape(want.shape), want)


def test_runs_without_a_log_are_left_out(run):
    del run.records[0].logs["weight"]
    assert len(frames.logs(run, "weight")) == 3 * 3


def test_words_stay_words(run):
    """A filter that empties a category would leave it in seaborn's legends."""
    d = frames.frame(run)
    assert "category" not in map(str, d.dtypes)


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda r: frames.frame(r, view="tuned"), "toy/main.*'tuned'.*pre global test"),
        (lambda r: frames.rounds(r, moment="own"), "'own'.*post personal val"),
        (lambda r: frames.frame(r, at="best"), "'best'.*best_val, best_val_gini"),
        (lambda r: frames.scores(r, "worst"), "'worst'.*last10_mean"),
        (lambda r: frames.biases(r), "FedAvg has counted no groups.*needs `groups`"),
        (lambda r: frames.logs(r, "drift"), "drift.*cohort, on, weight"),
        (lambda r: frames.logs(r, "on", "weight"), "on, weight of FedAvg.*Study.log"),
    ],
)
def test_an_error_names_what_there_is(run, call, words):
    with pytest.raises(ValueError, match=words):
        call(run)
