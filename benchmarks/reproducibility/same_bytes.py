"""One seed, one log: digests of the columns of every registered agent's logs, in every world, by every interface.

    python benchmarks/reproducibility/same_bytes.py [--users N] [--items P] [--only WORLD] [--json FILE]
        [--compare benchmarks/reproducibility/digests.json] [--other-versions]

Users who live apart (sessions, ratings, purchases): ``simulate`` with 1, 2 and 7 workers (threads, and two processes),
the single environment, the vector environment with 1, 8 and 100 lanes (their logs rebuilt from what ``reset`` and
``step`` return), and the command line. The campaigns' platform: ``run_campaigns``, its environment, and the command
line. These logs must be alike. So must be the truth columns, the columns of ``replay`` and the exposures in memory and
from the command line. Next come digests of what each fitted policy answers for fixed users, of the catalogues,
and of what else an agent can do in a world. Provenance has no part in any. An agent that a world refuses is written
down as ``refused``.

``--json`` writes ``{settings, made_with, digests: {world: {agent: {interfaces: digest}}}}``. ``--compare`` holds
this run against such a file, agent by agent: before and after a change of the package that must change no byte. Both
are to come from one machine: what is fitted with BLAS and LAPACK may round otherwise on another. So may it with other
versions of NumPy and SciPy: with ``--other-versions`` agents so fitted (``ROUNDED``) are shown and may differ, and
nothing else. ``digests.json`` is of the default sizes.

Ends with status 1 where interfaces that must be alike are not, or where this run differs from FILE.
"""

from __future__ import annotations

import hashlib
import json
import platform as machine
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "shared"))

from _study import packed, parser_of, write_text
from interfaces import Digests, Setting, alike, of_platform, of_users, on_exposures
from package import agent_names, small_shards

Tables = dict[str, dict[str, Digests]]

SHORT = "+updates=20000+factors=12"
PARAMETERS = {
    **dict.fromkeys(("bpr", "rmf", "ulrmf", "ulbpr", "recresp", "cause", "cause-prod"), SHORT),
    "constant-list": "+items=3;1;4",
}
"""What agents are given so that a fit is short; or ranks more than one item."""

EXPOSURE_AGENTS = ("bpr", "rmf", "ulrmf", "ulbpr", "recresp", "cause", "cause-prod")
FOREIGN = "interfaces:OrderReader"
SOFTENED = ("item-knn+temperature=0.3", "user-knn+epsilon=0.2")
RATERS = (
    "mf-naive-ratings+penalty=0.0002",
    "mf-ips-ratings+penalty=0.0002+unrated=true",
    "mf-ips-ratings+penalty=0.0002+temperature=0.3",
)
ON_EXPOSURES = ", on exposures"

ROUNDED = ("banditnet", "dr-policy", "poem", "reward-cross-entropy")
"""Agents whose fit is made of products of matrices and exponentials that another version of NumPy or SciPy rounds
otherwise; so their choices may differ, and with them the log."""


def settings_of(n_users: int, n_items: int, executors: Mapping[str, Executor | None]) -> dict[str, Setting]:
    """The worlds by the name under which they are reported, and who acts there: everybody, or where a world is met a
    second time some."""
    everyone = tuple(name + PARAMETERS.get(name, "") for name in agent_names())
    on_exposures_too = (name + PARAMETERS.get(name, "") + ON_EXPOSURES for name in EXPOSURE_AGENTS)
    few = ("random", "user-popularity", "item-knn")
    apart = {"n_users": n_users, "n_train": 5 * n_users, "executors": executors}
    sessions = {"n_items": n_items, "n_flips": min(50, n_items // 2)}
    purchases = {"n_items": n_items, "n_periods": 4, "slate_size": 6, "base": -2.5}
    platform = {"n_users": 20 * n_users, "n_items": n_items, "n_days": 530}
    return {
        "sessions": Setting(
            "sessions", "recogym-v1", {**sessions, "clock": "normal"}, (*everyone, *SOFTENED, FOREIGN), **apart
        ),
        "sessions, drifting": Setting(
            "sessions", "recogym-v1", {**sessions, "sigma_omega": 0.4, "drift_in_bandit": True}, few, **apart
        ),
        "sessions, many items": Setting("sessions", "recogym-v1", {"n_items": 20 * n_items}, few[:2], **apart),
        "ratings": Setting("ratings", "quick", {"n_items": n_items}, (*everyone, *RATERS, FOREIGN), **apart),
        "ratings, once": Setting(
            "ratings", "quick", {"n_items": n_items, "repeat_pays": False, "observation": "popularity"}, few, **apart
        ),
        "campaigns": Setting("campaigns", "growing", platform, ("organic", "house", *everyone), **apart),
        "campaigns, viadeo": Setting(
            "campaigns", "viadeo", {**platform, "n_items": 180}, ("organic", "house"), **apart
        ),
        "purchases": Setting(
            "purchases", "personalised", {**purchases, "slates": "fixed"},
            ("house", *everyone, FOREIGN, *on_exposures_too), **apart,
        ),
        "purchases, independent": Setting(
            "purchases", "popularity", {**purchases, "rank_decay": "log"}, ("house", *few), **apart
        ),
    }  # fmt: skip


def digests_of(setting: Setting, agent: str) -> Digests:
    """Every digest of an agent in a world."""
    if setting.world == "campaigns":
        return of_platform(setting, agent)
    if agent.endswith(ON_EXPOSURES):
        return on_exposures(setting, agent.removesuffix(ON_EXPOSURES))
    return of_users(setting, agent)


def run(settings: Mapping[str, Setting]) -> tuple[Tables, bool]:
    """All digests, printed as they come, and whether all are alike that must be."""
    tables: Tables = {}
    all_alike = True
    for world, setting in settings.items():
        tables[world] = {}
        print(f"{world}: {setting.preset}, {dict(setting.params)}")
        for agent in setting.agents:
            found = digests_of(setting, agent)
            tables[world][agent] = collapsed(found)
            differ = alike(found)
            all_alike &= not differ
            refused = sorted(name for name, value in found.items() if value == "refused")
            verdict = f"{len(found)} digests" + (f", refused: {', '.join(refused)}" if refused else "")
            print(f"  {agent:<50} {together(found)}  {verdict}", flush=True)
            for group in differ:
                print(f"    NOT ALIKE: { {name: d for name, d in found.items() if name.startswith(group)} }")
    return tables, all_alike


def together(found: Digests) -> str:
    """One digest of all of an agent's."""
    return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()[:12]


def collapsed(found: Digests) -> Digests:
    """One digest for each group of interfaces that are alike, with their number; all of a group that is not."""
    differ, groups = alike(found), {name.partition(":")[0]: [] for name in found}
    for name in found:
        groups[name.partition(":")[0]].append(name)
    out: Digests = {}
    for group, names in groups.items():
        if group in differ or len(names) == 1:
            out |= {name: found[name] for name in names}
        else:
            out[f"{group}: {len(names)} interfaces"] = found[names[0]]
    return out


def comparison(before: Tables, after: Tables) -> Iterator[tuple[str, str, str, str, str]]:
    """(world, agent, before, after, what differs) of every agent of either."""
    for world in sorted({*before, *after}):
        old, new = before.get(world, {}), after.get(world, {})
        for agent in sorted({*old, *new}):
            a, b = old.get(agent, {}), new.get(agent, {})
            differ = sorted(name for name in {*a, *b} if a.get(name) != b.get(name))
            yield world, agent, together(a) if a else "-", together(b) if b else "-", ", ".join(differ)


def compare(before: Tables, after: Tables, free: tuple[str, ...] = ()) -> bool:
    """Print the table; whether all is equal, but for the agents that are ``free`` to differ."""
    rows = list(comparison(before, after))
    print(f"\n{'world':<24} {'agent':<50} {'before':<12}  {'after':<12}  equal")
    for world, agent, a, b, differ in rows:
        print(f"{world:<24} {agent:<50} {a:<12}  {b:<12}  {'NO: ' + differ if differ else 'yes'}")
    changed = [row[1].partition("+")[0] for row in rows if row[-1]]
    print(f"{len(rows) - len(changed)} of {len(rows)} equal")
    if free:
        print(f"free to differ: {', '.join(free)}")
    return bool(rows) and set(changed) <= set(free)


def made_with() -> dict[str, str]:
    """What may round a fit otherwise."""
    libraries = {name: version(name) for name in ("numpy", "scipy", "numba")}
    return {"python": machine.python_version(), "machine": machine.machine(), **libraries}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--users", type=int, default=40, help="users of a log")
    parser.add_argument("--items", type=int, default=600)
    parser.add_argument("--only", action="append", metavar="WORLD", help="this world alone; may be repeated")
    parser.add_argument("--json", type=Path, default=None)
    parser.add_argument("--compare", type=Path, default=None, metavar="FILE", help="written by --json before")
    parser.add_argument(
        "--other-versions",
        action="store_true",
        help="FILE was written with other versions of the libraries: fits that round otherwise may differ",
    )
    options = parser.parse_args()
    sizes = {"users": options.users, "items": options.items}
    before: Tables = {}
    if options.compare:
        earlier = json.loads(options.compare.read_text())
        before = earlier["digests"]
        if earlier["settings"] != sizes:
            parser.error(f"--compare {options.compare}: it was made with {earlier['settings']}, this run is of {sizes}")
        if earlier["made_with"] != made_with():
            print(f"{options.compare} was made with {earlier['made_with']}, this run is with {made_with()}")
    small_shards(16)
    with ExitStack() as stack:
        executors = {
            "1 worker": None,
            "2 threads": stack.enter_context(ThreadPoolExecutor(2)),
            "7 threads": stack.enter_context(ThreadPoolExecutor(7)),
            "2 processes": stack.enter_context(ProcessPoolExecutor(2, mp_context=get_context("spawn"))),
        }
        settings = settings_of(options.users, options.items, executors)
        if options.only:
            unknown = sorted({*options.only} - {*settings})
            if unknown:
                parser.error(f"--only {unknown[0]!r}: the worlds are {', '.join(settings)}")
            settings = {world: settings[world] for world in options.only}
            before = {world: before[world] for world in options.only if world in before}
        tables, good = run(settings)
    if options.json:
        write_text(options.json, packed({"settings": sizes, "made_with": made_with(), "digests": tables}) + "\n")
    if options.compare:
        good &= compare(before, tables, ROUNDED if options.other_versions else ())
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
