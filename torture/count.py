"""What a script of this folder counts: of `n` attempts, how many were refused clearly,
how many went on as they should, and how many did what nothing may do.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Count:
    """One row of the table.

    row: what was tried. clean: refused by an error of ours that names value, place and
    remedy. accepted: rightly let through, or gone on with and of the same bits.
    raw: another exception, or a traceback. silent: nonsense that passed. lost: rounds,
    runs or files that are gone or differ. examples: one line for each of the last
    three.
    """

    row: str
    clean: int = 0
    accepted: int = 0
    raw: int = 0
    silent: int = 0
    lost: int = 0
    examples: list[str] = field(default_factory=list)

    @property
    def n(self):
        return self.clean + self.accepted + self.raw + self.silent + self.lost

    @property
    def bad(self):
        return self.raw + self.silent + self.lost

    def add(self, outcome, example=""):
        """Count one attempt: outcome is the name of a count."""
        if outcome not in ("clean", "accepted", "raw", "silent", "lost"):
            raise ValueError(f"outcome = {outcome!r} is the name of no count")
        setattr(self, outcome, getattr(self, outcome) + 1)
        if outcome in ("raw", "silent", "lost"):
            self.examples.append(f"{outcome}: {example}")
