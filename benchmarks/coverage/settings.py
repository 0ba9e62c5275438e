"""The grid of the coverage study: worlds, sizes and seeds, fixed before the study was first run."""

from __future__ import annotations

from dataclasses import asdict, dataclass

N_ACTIONS = 1000
LEVEL = 0.95
LEAST_COVERAGE = 0.9345  # what a true 95 % interval misses once in a thousand, over 2,000 logs
WIDEST_RATIO = 1.3
NORMAL_COVERS = 0.94


@dataclass(frozen=True)
class Setting:
    """A world and a size of log.

    Attributes:
        name: stable id.
        weights: E[w^2] under the logging policy, which is uniform over 1,000 actions; log w is a normal's quantiles.
        correlation: power of w that the click probability is proportional to.
        ctr: click rate of the target policy before user effects.
        users: users a log.
        rows: mean rows a user; all users have as many where ``fixed``, else the number is geometric.
        effect: shape of the gamma distribution of user effects on the click probability (mean 1); None for no effect.
        sticky: probability that a row repeats its user's own action, so that weights depend within a user.
        fixed: see ``rows``.
        logs: number of logs.
        seed: of the draws.
    """

    name: str
    weights: float
    correlation: float
    ctr: float
    users: int
    rows: int = 1
    effect: float | None = None
    sticky: float = 0.0
    fixed: bool = True
    logs: int = 2000
    seed: int = 0

    def as_dict(self) -> dict:
        return asdict(self)


def _grid() -> list[Setting]:
    grid: list[Setting] = []

    def add(kind: str, *args, **named) -> None:
        seed = 20190 + 7919 * (len(grid) + 1)
        grid.append(Setting(f"{len(grid) + 1:02d}-{kind}", *args, seed=seed, **named))

    for label, weights in (("moderate", 5.7), ("heavy", 59.0)):
        for n in (1_000, 10_000, 100_000):
            for ctr in (0.001, 0.01, 0.1):
                add(f"{label}-n{n}-ctr{ctr:g}", weights, 0.0, ctr, n)
    for label, weights in (("moderate", 5.7), ("heavy", 59.0)):
        for word, power in (("correlated", 0.5), ("anticorrelated", -0.5)):
            for n, ctr in ((1_000, 0.1), (10_000, 0.01), (10_000, 0.1), (100_000, 0.01)):
                add(f"{label}-{word}-n{n}-ctr{ctr:g}", weights, power, ctr, n)
    for label, weights in (("light", 1.7), ("moderate", 5.7), ("heavy", 59.0)):
        for users, rows in ((100, 10), (100, 200), (300, 30), (3_000, 30), (500, 200)):
            for ctr in (0.01, 0.1):
                add(f"{label}-users{users}x{rows}-ctr{ctr:g}", weights, 0.0, ctr, users, rows, effect=0.3, fixed=False)
    for weights in (1.7, 5.7):
        add(f"same-users100x200-w{weights:g}", weights, 0.0, 0.1, 100, 200)
        add(f"weak-effect-users300x30-w{weights:g}", weights, 0.0, 0.1, 300, 30, effect=3.0, fixed=False)
        add(f"sticky-users3000x30-w{weights:g}", weights, 0.0, 0.01, 3_000, 30, effect=1.0, sticky=0.3, fixed=False)
    return grid


GRID = _grid()
