"""The table of the cells: means over training seeds, interquartile means with intervals, ties, CPU minutes.

All agents of a task are scored on the same users. An interval is a bootstrap over users and over training seeds, each
drawn again independently of the other (crossed), and over the errors of the task's two frozen values. A difference of
two agents is taken on the same draws of users, so it is of pairs.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar import task
from recsim_mnar.errors import UserError
from recsim_mnar.tasks import Task

Floats = NDArray[np.float64]

DRAWS, LEVEL, SEED = 2_000, 0.95, 20_260
KNOWING = ("myopic", "planner")
"""Agents that know the world: they lead no table."""


@dataclass(frozen=True)
class Draws:
    """What all agents of a task share in the bootstrap; B draws of n users.

    Attributes:
        weights: (B, n) how often each user was drawn, divided by n.
        low: (B,) values of random.
        high: (B,) values of the reference.
    """

    weights: NDArray[np.float32]
    low: Floats
    high: Floats

    @classmethod
    def of(cls, chosen: Task, n: int, rng: np.random.Generator, draws: int = DRAWS) -> Draws:
        """Draws for n users."""
        weights = rng.multinomial(n, np.full(n, 1.0 / n), draws).astype(np.float32) / n
        ends = [rng.normal(known.value, known.error, draws) for known in (chosen.random, chosen.best)]
        return cls(weights, *ends)


def interquartile(values: Floats) -> Floats:
    """(...,) means of (..., S) values without a quarter of them, rounded down, at each end."""
    cut = values.shape[-1] // 4
    kept: Floats = np.sort(values, axis=-1)[..., cut : values.shape[-1] - cut]
    return kept.mean(axis=-1)


def redrawn(earned: Floats, lowest: Floats, chosen: Task, draws: Draws, rng: np.random.Generator) -> Floats:
    """(B,) interquartile means of an agent's scores.

    Args:
        earned: (S, n) of each training seed and user.
        lowest: (n,) what the uniform policy earned.
        chosen: the task.
        draws: of users and frozen values.
        rng: draws the training seeds.
    """
    apart = lowest - lowest.mean()
    slopes = earned @ apart / (apart @ apart)
    luck = draws.weights @ lowest - draws.low
    values = draws.weights @ earned.T - luck[:, None] * slopes
    scores = (values - draws.low[:, None]) / (draws.high - draws.low)[:, None]
    seeds = rng.integers(len(earned), size=scores.shape)
    return interquartile(np.take_along_axis(scores, seeds, axis=1))


def limits(values: Floats) -> list[float]:
    """Ends of the middle of drawn values."""
    return np.quantile(values, [(1.0 - LEVEL) / 2.0, (1.0 + LEVEL) / 2.0]).tolist()


def of_task(name: str, cells: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """All agents of a task: their scores, and who is tied with whom."""
    chosen, rng = task(name), np.random.default_rng(SEED)
    agents = {agent: list(group) for agent, group in itertools.groupby(sorted(cells, key=_agent), key=_agent)}
    found: dict[str, Any] = {}
    drawn: dict[str, Floats] = {}
    there = {agent: [one for one in group if "refused" not in one] for agent, group in agents.items()}
    lowest = np.array(there["random"][0]["earned"]) if there.get("random") else np.zeros(0)
    draws = Draws.of(chosen, len(lowest), rng) if len(lowest) else None
    for agent, group in agents.items():
        runs = sorted(there[agent], key=lambda one: one["seed"])
        if not runs or draws is None:
            found[agent] = {"refused": group[0].get("refused", "not run"), "seeds": 0, "wanted": len(group)}
            continue
        drawn[agent] = redrawn(np.array([one["earned"] for one in runs]), lowest, chosen, draws, rng)
        found[agent] = {**_summary(runs, limits(drawn[agent])), "wanted": len(group)}
    _ties(found, drawn)
    return found


def _agent(cell: Mapping[str, Any]) -> str:
    return str(cell["agent"])


def _summary(runs: Sequence[Mapping[str, Any]], interval: list[float]) -> dict[str, Any]:
    scores = np.array([one["score"] for one in runs])
    minutes = {part: sum(one["cpu_seconds"][part] for one in runs) / 60.0 for part in ("train", "evaluate")}
    return {
        "seeds": len(runs),
        "scores": scores.tolist(),
        "mean": float(scores.mean()),
        "iqm": float(interquartile(scores)),
        "interval": interval,
        "decisions": float(np.mean([one["decisions"] for one in runs])),
        "value": float(np.mean([one["value"] for one in runs])),
        "cpu_minutes": minutes,
        "behaviours": len({one["behaviour"] for one in runs}),
    }


def _ties(found: dict[str, Any], drawn: Mapping[str, Floats]) -> None:
    """Add to each agent how far it is behind the best that does not know the world, and whom it is tied with."""
    rivals = [agent for agent in drawn if agent not in KNOWING]
    if not rivals:
        return
    best = max(rivals, key=lambda agent: found[agent]["iqm"])
    for agent, values in drawn.items():
        low, high = limits(values - drawn[best])
        found[agent]["ahead_of_best"] = [found[agent]["iqm"] - found[best]["iqm"], low, high]
        found[agent]["tied_with"] = [
            other for other, theirs in drawn.items() if other != agent and _holds_zero(values - theirs)
        ]
        found[agent]["best"] = bool(agent in rivals and (agent == best or low <= 0.0 <= high))


def _holds_zero(values: Floats) -> bool:
    low, high = limits(values)
    return low <= 0.0 <= high


def results(cells: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The table as JSON types: task, then agent; agents as they come among the cells."""
    names = list(dict.fromkeys(one["task"] for one in cells))
    agents = list(dict.fromkeys(one["agent"] for one in cells))
    tasks = {name: of_task(name, [one for one in cells if one["task"] == name]) for name in names}
    digests = {one["task"]: one["task_digest"] for one in cells if "task_digest" in one}
    return {"agents": agents, "digests": digests, "tasks": tasks}


def merged(recorded: Mapping[str, Any], found: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """What was recorded, with the tasks found anew in its place; and why a task stays as it was recorded.

    A task's agents are compared with each other, so they are replaced together: only where none of them has fewer
    training seeds than were recorded.

    Args:
        recorded: an earlier table, empty where there was none.
        found: the table of the cells that are there.

    Raises:
        UserError: a task is to stay that was measured on another version of itself.
    """
    tasks, digests, kept = dict(found["tasks"]), dict(found["digests"]), {}
    for name, before in recorded.get("tasks", {}).items():
        now = tasks.get(name, {})
        fewer = [agent for agent, one in before.items() if now.get(agent, {"seeds": 0})["seeds"] < one["seeds"]]
        if not fewer:
            continue
        if recorded["digests"][name] != task(name).digest:
            raise UserError(f"results.json has {name} of other parameters: run all of its cells again")
        tasks[name], digests[name] = dict(before), recorded["digests"][name]
        kept[name] = f"cells of {len(fewer)} of its agents are not here; --tasks {name} makes them"
    agents = dict.fromkeys((*found["agents"], *recorded.get("agents", ())))
    for of in tasks.values():
        for agent in agents:
            of.setdefault(agent, {"refused": "not run", "seeds": 0, "wanted": 1})
    digests = {name: digests[name] for name in tasks if name in digests}
    return {"agents": list(agents), "digests": digests, "tasks": tasks}, kept


def cell(one: Mapping[str, Any]) -> str:
    """An interquartile mean, bold where no rival is ahead."""
    if not one["seeds"]:
        return "not run" if one["refused"] == "not run" else "none"
    return f"**{one['iqm']:.2f}**" if one.get("best") else f"{one['iqm']:.2f}"


def with_interval(one: Mapping[str, Any]) -> str:
    """A cell, with its interval where there is one."""
    return cell(one) + ("" if not one["seeds"] else " [{:.2f}, {:.2f}]".format(*one["interval"]))


def lines(found: Mapping[str, Any]) -> list[str]:
    """Lines of the page: interquartile means, then means and what they cost, then what was not run."""
    agents, tasks, head = found["agents"], found["tasks"], _head(found)
    out = _rows(["agent", *head], [[agent, *(with_interval(tasks[name][agent]) for name in tasks)] for agent in agents])
    out += ["", "Mean over seeds; how many there are, and CPU minutes of all tasks and seeds:", ""]
    out += _rows(["agent", *head, "seeds", "training", "evaluation"], [_means(agent, tasks) for agent in agents])
    missing = _missing(agents, tasks)
    return [*out, "", *missing] if missing else out


def tuned_lines(chosen: Mapping[str, Any], tasks: Sequence[str]) -> list[str]:
    """The settings that were chosen, and what each scored where it was."""
    rows = []
    for kind, of in chosen.items():
        setting = ", ".join(f"{key} {value}" for key, value in of["best"]["setting"].items())
        scores = [f"{of['best']['scores'][name]:.2f}" for name in tasks]
        seconds = {id(one): one["cpu_seconds"] for one in of["candidates"] if not one["setting"]["deterministic"]}
        rows.append([kind, setting, *scores, f"{len(of['candidates'])}", f"{sum(seconds.values()) / 60:.1f}"])
    return _rows(
        ["model", "tuned setting", *(name.removesuffix("-v1") for name in tasks), "candidates", "CPU minutes"], rows
    )


def _head(found: Mapping[str, Any]) -> list[str]:
    return [name.removesuffix("-v1") for name in found["tasks"]]


def _rows(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows)]


def _means(agent: str, tasks: Mapping[str, Any]) -> list[str]:
    of = [tasks[name][agent] for name in tasks]
    means = [f"{one['mean']:.3f}" if one["seeds"] else "-" for one in of]
    seeds = sorted({one["seeds"] for one in of if one["seeds"]})
    spans = "-" if not seeds else f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    minutes = [sum(one["cpu_minutes"][part] for one in of if one["seeds"]) for part in ("train", "evaluate")]
    return [agent, *means, spans, *(f"{each:.1f}" for each in minutes)]


def _missing(agents: Sequence[str], tasks: Mapping[str, Any]) -> list[str]:
    """Why cells are empty, and which have fewer seeds than they should; one line per agent and reason."""
    found: dict[tuple[str, str], list[str]] = {}
    for agent, name in itertools.product(agents, tasks):
        one = tasks[name][agent]
        if not one["seeds"]:
            found.setdefault((agent, one["refused"]), []).append(name.removesuffix("-v1"))
        elif one["seeds"] < one["wanted"]:
            reason = f"{one['seeds']} of {one['wanted']} seeds were run"
            found.setdefault((agent, reason), []).append(name.removesuffix("-v1"))
    return [f"- `{agent}` on {', '.join(names)}: {reason}" for (agent, reason), names in found.items()]
