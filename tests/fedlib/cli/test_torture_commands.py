"""A share of tests/torture/commands.py."""

from torture import commands


def test_no_traceback_and_no_silent_nonsense():
    (count,) = commands.measure(24, seed=1)
    assert count.bad == 0, count.examples
    assert count.n == 24 and count.clean >= 12


def test_a_line_that_did_something_else_is_noticed(tmp_path):
    """The oracle of `silent`: the run has other rounds, another value, fewer clients."""
    commands.prepare(tmp_path)
    argv = "run FedAvg digits:clients=3,hidden=4 --rounds 1 --set lr=.5".split()
    status, err, seen = commands.called(argv, tmp_path)
    assert (status, err) == (0, "") and not commands.unlike(argv, seen, tmp_path)
    for told, other in (("1", "2"), ("lr=.5", "lr=.4"), ("clients=3", "clients=4")):
        line = [word.replace(told, other) for word in argv]
        assert commands.unlike(line, seen, tmp_path), line


def test_an_error_that_is_not_ours_is_noticed():
    for act, ours in (
        (lambda: int("x"), False),
        (lambda: {}["x"], False),
        (lambda: open("/nowhere"), True),
        (lambda: commands.cli.parse_task("digitss"), True),
    ):
        try:
            act()
        except Exception as e:
            assert commands.ours(e) == ours
