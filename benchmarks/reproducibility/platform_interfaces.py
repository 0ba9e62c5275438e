"""The digests of one agent on the campaigns world's platform; names of interfaces as in ``interfaces.py``."""

from __future__ import annotations

import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import package as p
from interfaces import OTHER_SEED, SEED, Digests, Setting, digest, digest_file, refusals


def of_platform(setting: Setting, spec: str) -> Digests:
    """The digests of a platform whose campaigns show what an agent recommends; or ``house``, or ``organic``: none."""
    found: Digests = {}
    if spec == "organic":
        found["log: no campaign"] = digest(p.platform_log(p.run_campaigns(setting.made, SEED, days=())).columns)
        return found
    recommender = None if spec == "house" else p.learner(spec)
    with refusals(found, "fit"):
        platform = p.run_campaigns(setting.made, SEED, recommender=recommender, sharpness=None)
        found["log: run_campaigns"] = digest(p.platform_log(platform).columns)
        found["truth"] = digest({"acceptance": platform.acceptance(platform.present(), 1)})
        found["log: environment"] = _platform_from_env(setting, recommender)
        _platform_from_command_line(setting, spec, found)
        if recommender is not None:
            _platform_variants(setting, recommender, found)
    if recommender is not None:
        with refusals(found, "fit on the house's log"):
            _on_the_houses_log(setting, recommender, found)
    return found


def _platform_from_env(setting: Setting, recommender: Any) -> str:
    env = setting.env()
    env.reset(seed=SEED)
    over, number = False, 0
    while not over:
        platform, weights = env.platform, env.world.deployed_weights
        if recommender is None:
            over = env.step(weights)[2]
        else:
            log, users = p.additions_log(platform), platform.present()
            policy = recommender.fit(log, n_items=env.world.n_items, seed=p.derive_seed(SEED, f"campaign/{number}"))
            scores = np.where(weights > 0, p.score_users(policy, log, users), -np.inf)
            over = env.step_lists(*platform.best_lists(scores, users))[2]
        number += 1
    return digest(env.log().columns)


def _platform_from_command_line(setting: Setting, spec: str, found: Digests) -> None:
    with tempfile.TemporaryDirectory() as place:
        out = Path(place) / "run"
        users = setting.made.params.n_users
        p.command_line(
            "simulate", *setting.arguments(), "--policy", spec, "--users", users, "--seed", SEED, "--truth",
            "--out", out,
        )  # fmt: skip
        found["log: command line"] = digest(p.Log.read(out / "log").columns)
        for name in ("truth.parquet", "catalogue.npz"):
            found[name] = digest_file(out / name)


def _platform_variants(setting: Setting, recommender: Any, found: Digests) -> None:
    """Lists drawn by scores, and retraining round by round."""
    with refusals(found, "log of drawn lists"):
        platform = p.run_campaigns(setting.made, SEED, recommender=recommender, sharpness=1.0)
        found["log of drawn lists"] = digest(p.platform_log(platform).columns)
    loop = {"rounds": 2, "every": 60.0, "seed": SEED}
    platform, rounds = p.feedback_loop(setting.made, recommender, with_loo=False, **loop)
    found["log of a feedback loop"] = digest(p.platform_log(platform).columns)
    found["rounds"] = _digest_rounds(rounds)
    with refusals(found, "rounds with leave-one-out"):
        found["rounds with leave-one-out"] = _digest_rounds(p.feedback_loop(setting.made, recommender, **loop)[1])


def _digest_rounds(rounds: list[Any]) -> str:
    told = [asdict(one) for one in rounds]
    return digest({key: np.array([one[key] for one in told]) for key in told[0]})


def _on_the_houses_log(setting: Setting, recommender: Any, found: Digests) -> None:
    """A recommender of the whole log of a platform, what the house recommended included: its scores, and replayed."""
    platform = p.run_campaigns(setting.made, OTHER_SEED)
    log = p.platform_log(platform)
    policy = recommender.fit(log, n_items=setting.made.n_items, seed=p.derive_seed(SEED, "fit"))
    scores = p.score_users(policy, log.organic(), platform.present())
    found["answers of the fitted policy"] = digest({"scores": scores})
    with refusals(found, "replay"):
        found["replay"] = digest({"chance": p.replay(log, policy)})
