"""Steps per CPU second of the environments, beside EnvPool's and gymnax's CartPole: medians of rounds in turn.

    bash benchmarks/speed/make_peers.sh envpool gymnax
    python benchmarks/speed/stepping.py [--quick] [--rounds 7] [--json FILE] [--page FILE]

Sessions with RecoGym's defaults and 100 items; ratings with the preset ``quick``, 100 items; random actions, drawn
before the clock starts. ``simulate`` makes logs of the same world, without an agent: its decisions are the least that
a step costs here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from table import cpu_seconds, into_results, middle, number, parser_of, peer, table

from recsim_mnar.envs import world_env, world_vector_env
from recsim_mnar.log import Log
from recsim_mnar.policies import registry
from recsim_mnar.simulation import simulate
from recsim_mnar.worlds import make_world

N_ITEMS, LANES, PEERS_LANES = 100, (1, 16, 64, 1024), (64, 1024)
VECTOR: dict[str, dict[str, Any]] = {
    "sessions": {},
    'sessions, `info="none"`': {"info": "none"},
    'sessions, `info="none"`, `copy=False`': {"info": "none", "copy": False},
    'sessions, `info="views"`': {"info": "views"},
    'sessions, `observation="shown"`': {"observation": "shown"},
}
SINGLE: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "sessions, single": (world_env, {"world": "sessions", "preset": "recogym-v1", "n_items": N_ITEMS}),
    "ratings, single": (world_env, {"world": "ratings", "preset": "quick"}),
    'ratings, single, `info="none"`': (world_env, {"world": "ratings", "preset": "quick", "info": "none"}),
}
SIMULATE, ENVPOOL, GYMNAX, ROLLED = (
    "`simulate`: decisions", "EnvPool CartPole", "gymnax CartPole", "gymnax CartPole, all steps in one call",
)  # fmt: skip


def vector(lanes: int, seconds: float, **asked: Any) -> float:
    """Of a vector environment, steps of all lanes counted."""
    env = world_vector_env(lanes, world="sessions", preset="recogym-v1", n_items=N_ITEMS, **asked)
    actions = np.random.default_rng(0).integers(0, N_ITEMS, (50, lanes))
    env.reset(seed=0)
    found = rate(lambda: [env.step(chosen) for chosen in actions], actions.size, seconds)
    env.close()
    return found


def single(make: Callable[..., Any], seconds: float, **asked: Any) -> float:
    """Of a single environment, resets within the time."""
    env = make(**asked)
    actions = np.random.default_rng(0).integers(0, N_ITEMS, 2000).tolist()
    env.reset(seed=0)

    def steps() -> None:
        for chosen in actions:
            if env.step(chosen)[2]:
                env.reset()

    return rate(steps, len(actions), seconds)


def decisions(seconds: float) -> float:
    """Of ``simulate`` under uniform logging."""
    world = make_world("sessions", "recogym-v1", [f"n_items={N_ITEMS}"])
    uniform = registry.learner("random").fit(Log({}), n_items=N_ITEMS, seed=0)
    simulate(world, uniform, 100, seed=0)
    spent = made = 0.0
    while spent < seconds:
        more, log = cpu_seconds(lambda: simulate(world, uniform, 2000, seed=1))
        spent, made = spent + more, made + int(log.is_bandit.sum())
    return made / spent


def rate(work: Callable[[], Any], steps: int, seconds: float) -> float:
    """Steps a CPU second of work that is done once before, and then again until so much time is spent."""
    work()
    done, began = 0, time.process_time()
    while done == 0 or time.process_time() - began < seconds:
        work()
        done += steps
    return done / (time.process_time() - began)


def once(seconds: float) -> dict[str, dict[int, float]]:
    """One round: by path, steps a CPU second by number of lanes; peers that are not there are left out."""
    found = {name: {n: vector(n, seconds, **asked) for n in LANES} for name, asked in VECTOR.items()}
    found |= {name: {1: single(make, seconds, **asked)} for name, (make, asked) in SINGLE.items()}
    found[SIMULATE] = {1: decisions(seconds)}
    steps = int(1e6 * seconds)
    for name, key, library in (
        (ENVPOOL, "rates", "envpool"),
        (GYMNAX, "rates", "gymnax"),
        (ROLLED, "rolled", "gymnax"),
    ):
        there = peer(library, library, [steps, *PEERS_LANES])
        if there is not None:
            found[name] = {int(n): value for n, value in there[key].items()}
    return found


def medians(rounds: list[dict[str, dict[int, float]]]) -> dict[str, dict[int, float]]:
    """Of all rounds."""
    return {name: {n: middle([one[name][n] for one in rounds]) for n in rounds[0][name]} for name in rounds[0]}


def lines(
    found: Mapping[str, Mapping[Any, float]],
    head: str = "steps a CPU second",
    peers: Sequence[str] = (ENVPOOL, GYMNAX),
) -> list[str]:
    """The table in Markdown, as ``results.json`` holds it or as it was measured."""
    cells = {name: {int(n): value for n, value in of.items()} for name, of in found.items()}
    lanes = sorted({n for of in cells.values() for n in of})
    rows = [[name, *(number(of[n]) if n in of else "" for n in lanes)] for name, of in cells.items()]
    rows += [[name, "not measured"] for name in peers if name not in cells]
    return table([head, *(f"{n:,} lane{'s' * (n > 1)}" for n in lanes)], rows)


def main() -> int:
    parser = parser_of(__doc__, quick="one short round: shows that all of it runs")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path, help="put the medians under 'stepping' of this file")
    parser.add_argument("--page", type=Path, help="put the table between the marks of this page")
    a = parser.parse_args()
    seconds, n_rounds = (0.02, 1) if a.quick else (0.15, a.rounds)
    found = medians([once(seconds) for _ in range(n_rounds)])
    text = lines(found)
    print("\n".join(text))
    if a.json:
        rates = {name: {str(n): value for n, value in of.items()} for name, of in found.items()}
        into_results(a.json, "stepping", {"rounds": n_rounds, "rates": rates})
    if a.page:
        from _study import into_marks  # found where table looks

        into_marks(a.page, "stepping", text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
