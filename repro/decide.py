"""More seeds where claims are open: python -m repro.decide [PAPER] --hours 2.

Open are the claims of results/claims.csv that are undecided, and whose seeds in all
(`needs`) are at most those of the last look. Seeds are added to a study on a data set,
for all of its methods, so that every pair stays whole; only up to the next of LOOKS,
since a verdict may fall there and nowhere between. Looks with the most decisions per
CPU minute come first. After a look its study is packed, `dvc repro results` draws it
and tests the claims, and the plan is made anew.

Whatever stops it, finished runs are kept: the same command goes on; where it stops
after a look, `dvc repro results` does. What it has decided to add stands in
papers/<paper>/seeds.yaml, to be committed with the evidence.
"""

import contextlib
import math
import subprocess
import sys
import time
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean

import pandas as pd
import yaml

from fedlib.cli.program import program
from fedlib.core import errors, files
from fedlib.measures.verdicts import LOOKS
from fedlib.study import audit, identity, once, store, studies
from fedlib.study.compute import compute_all
from repro import papers

CLAIMS = Path("results/claims.csv")
HEAD = """\
# How many seeds a study has on a data set at tier small, where open claims asked for
# more than studies.yaml gives. Written by `python -m repro.decide`, committed by you.
"""


@dataclass(frozen=True)
class Look:
    """The next look at a study on a data set.

    runs: that are missing; minutes: of one CPU, for these; claims: that it would decide
    (of a claim on k data sets, 1 / k at each); open: the same of all looks to come."""

    paper: str
    study: str
    dataset: str
    seeds: int
    to: int
    runs: int
    minutes: float
    claims: float
    open: float

    def worth(self):
        """Decisions per CPU minute, now and in the end."""
        minutes = max(self.minutes, 1e-6)
        return self.claims / minutes, self.open / minutes

    def __str__(self):
        grows = f"{self.seeds} -> {self.to} seeds, {self.runs} runs"
        return f"{self.paper}/{self.study} on {self.dataset}: {grows}"


# ---------------------------------------------------------------- the plan
def plan(only=None):
    """The looks that open claims ask for, of one paper or of all; the best first.

    Pilots decide nothing, and what studies.yaml does not have is left out. Raises
    ValueError."""
    table = pd.read_csv(CLAIMS, dtype={"paper": str})
    table = table[(table.holds == "undecided") & (table.needs <= LOOKS[-1])]
    table = table[table.paper == only] if only else table
    at, now, tree = Counter(), {}, studies.load()
    for claim in table.fillna({"runs": ""}).itertuples():
        places = {behind(tree, claim.paper, run) for run in claim.runs.split()}
        for paper, study in {p[:2] for p in places - now.keys() if p[1]}:
            for dataset, cells in by_dataset(paper, study).items():
                seeds = {c.seed for c in cells}
                if min(seeds) < studies.PILOT:
                    now[paper, study, dataset] = len(seeds)
        lacks = [p for p in places if now.get(p, claim.needs) < claim.needs]
        at.update({(p, claim.needs): 1 / len(lacks) for p in lacks})
    looks = []
    for place in {p for p, _ in at}:
        to = min(n for n in LOOKS if n > now[place])
        later = {needs: n for (p, needs), n in at.items() if p == place}
        soon = sum(n for needs, n in later.items() if needs <= to)
        by = cost(*place, to)
        looks.append(Look(*place, now[place], to, *by, soon, sum(later.values())))
    return sorted(looks, key=lambda x: (x.worth(), str(x)), reverse=True)


def behind(tree, paper, run):
    """(paper, study, data set) of a claim's run: rows steps_best are made of steps."""
    study, dataset = run.split(":", 1)
    of = (s for s in tree[paper]["studies"] if study.startswith(s))
    return paper, max(of, key=len, default=""), dataset


def by_dataset(paper, study, **changes):
    """{data set: [Cell]} of a study."""
    out = {}
    for c in studies.cells(paper, study, **changes)[0]:
        out.setdefault(c.dataset, []).append(c)
    return out


def lacking(paper, study, dataset, n):
    """The cells of a study on a data set with n seeds whose runs are nowhere."""
    own = list(dict.fromkeys(c.seed for c in by_dataset(paper, study)[dataset]))
    more = studies.grown(own, n, f"{paper}/{study}")
    wanted = by_dataset(paper, study, seeds=more)[dataset]
    return audit.lacking(wanted, paper, study)


def cost(paper, study, dataset, n):
    """(runs that are missing, CPU minutes of these): each as long as the stored runs of
    its method and setting, else of its study, else as any."""
    rows, took = store.listed(audit.STORE / f"{paper}-{study}"), defaultdict(list)
    for row in rows:
        took[row["dataset"], row["method"], row["setting"]].append(row["seconds"])
    usual = mean(row["seconds"] for row in rows) if rows else 2.0
    missing = lacking(paper, study, dataset, n)
    each = (took.get((c.dataset, c.method, c.setting), [usual]) for c in missing)
    return len(missing), sum(map(mean, each)) / 60


def show(looks):
    """Print a plan."""
    table = pd.DataFrame(map(asdict, looks)).drop(columns="open")
    print(table.rename(columns={"minutes": "CPU min"}).round(1).to_string(index=False))
    runs, minutes, claims = table[["runs", "minutes", "claims"]].sum()
    print(f"In all {runs:,.0f} runs, {minutes:.1f} CPU min, about {claims:.0f} claims.")


# ---------------------------------------------------------------- a look
def decide(
    paper=None, *, hours: float = math.inf, dry_run: bool = False, workers: int = None
):
    """add seeds to the studies whose claims are open

    paper: of one paper only
    hours: begin no look after so many hours (no limit)
    dry_run: print the plan, no more
    workers: processes (one per core)"""
    until = time.time() + 3600 * hours
    with contextlib.chdir(papers.folder().parent):
        tree = studies.load()
        small = f"params.yaml: tier = {tree['tier']!r}; seeds are added at small only"
        errors.refuse_if(tree.pop("tier") != "small", small)
        if paper:
            errors.known(tree, "paper", paper)
        why = f"fedlib's sources are in no commit ({files.commit()}): commit them first"
        errors.refuse_if(not dry_run and identity.uncommitted(files.commit()), why)
        looks = plan(paper)
        if looks:
            show(looks)
        while looks and not dry_run:
            take(looks, until, workers)
            if not time.time() < until:
                print("The time is over; the same command goes on from here.")
                return
            looks = plan(paper)
    if not looks:
        print("No claim is open that more seeds would decide.")


def take(looks, until, workers):
    """Take those looks that belong to the study of the first, and test the claims."""
    first, done = looks[0], {}
    for look in looks:
        mine = (look.paper, look.study) == (first.paper, first.study)
        if mine and time.time() < until and (look.claims or look is first):
            print(f"{look}, about {look.minutes:.1f} CPU min", flush=True)
            identity.warn_if_edited()
            todo = lacking(look.paper, look.study, look.dataset, look.to)
            compute_all(todo, audit.RUNS, workers)
            done[look.dataset] = look.to
    if done:
        settle(first.paper, first.study, done)


def settle(paper, study, more):
    """Give a study its seeds {data set: n}, all of whose runs are there; pack it, draw
    it, and test the claims."""
    file = Path("papers", paper, "seeds.yaml")
    tree = studies.read(file) if file.exists() else {}
    tree[study] = tree.get(study, {}) | more
    text = HEAD + yaml.safe_dump(tree, allow_unicode=True)
    files.whole(file, lambda f: f.write(text.encode()))
    print(f"{file}: {study}: {', '.join(f'{k} {n}' for k, n in more.items())}")
    audit.pack([f"{paper}/{study}"])
    redraw()
    for path in once.pack("small"):
        print(f"{path}: what the notebook has measured")


def redraw():
    """`dvc repro results`. Raises ValueError where it fails."""
    words = [sys.executable, "-m", "dvc", "repro", "results"]
    why = "dvc repro results failed: mend it, and call it yourself"
    errors.refuse_if(subprocess.run(words).returncode, why)


if __name__ == "__main__":
    program(decide)
