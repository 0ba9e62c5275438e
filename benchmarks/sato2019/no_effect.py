"""The checks of a log asked of made-up logs in which recommendations cause nothing: which of them pass there?

Logs of the purchases world come in pairs: as it is, and with P(Y^T) := P(Y^C); users, tastes and the deployed
recommender are the same. Each is searched, trained and judged as a real log is, propensities being the item's share of
those present, as on Ta-Feng. The deployed recommender shows everybody the same items, of which these propensities are
right, or each user what that user would buy, of which they are not. What passes as often without an effect says how a
method behaves, or how what was recommended was chosen; it is no evidence of uplift.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import analysis
import numpy as np
import real
from logs import RealLog
from semi import log_of

from recsim_mnar.purchases.world import PurchasesParams, PurchasesWorld

DEPLOYMENTS = ("popularity", "personalised")
LIKE = "tafeng"  # the real log whose model of propensities is fitted


def world_of(deployment: str, effect: bool, catalogue: int, settings: dict[str, Any]) -> PurchasesWorld:
    """A world of the settings' size; without an effect P(Y^T) is P(Y^C), and what is recommended the same."""
    params = replace(PurchasesParams(), deployment=deployment, catalogue_seed=catalogue, **settings["world"])
    world, users = PurchasesWorld(params), np.arange(settings["users"])
    truth, e = world.outcomes_of(catalogue, users), world.deployed_propensities(catalogue, users)
    treated = truth.treated if effect else truth.control
    return PurchasesWorld(params, control=truth.control, treated=treated, propensities=e)


def made_log(deployment: str, effect: bool, catalogue: int, settings: dict[str, Any]) -> RealLog:
    """A log of such a world, without propensities."""
    world = world_of(deployment, effect, catalogue, settings)
    exposures = log_of(world, settings["users"], world.params.n_periods, catalogue).with_propensities(None)
    present = np.zeros((settings["users"], world.params.n_periods), bool)
    present[exposures.user, exposures.time] = True
    return RealLog(LIKE, exposures, present, np.arange(world.n_items).astype(str), settings["test_periods"])


def checks_of(log: RealLog, settings: dict[str, Any]) -> dict[str, bool]:
    """The claims' checks after search, training and test on a log."""
    with tempfile.TemporaryDirectory() as folder:
        result = real.validation(log, settings, Path(folder))
        result |= real.test(log, settings, Path(folder), result["chosen"], settings["real"]["seeds"][log.name])
    return analysis.checks(result)


def settings_for(settings: dict[str, Any]) -> dict[str, Any]:
    """The study's settings with fewer and smaller fits, and nothing chosen by other countings."""
    own = settings["no_effect"]
    real_log = {
        "lengths": own["lengths"],
        "seeds": {LIKE: 2},
        "seeds_of_others": 1,
        "chosen_by": {LIKE: ()},
    }
    return {
        **settings,
        "again": settings["real"]["again"],
        "real": {**settings["real"], **real_log},
        "training": {**settings["training"], **own["training"]},
    }


def no_effect(settings: dict[str, Any]) -> dict[str, Any]:
    """By deployed recommender and check, on how many of the logs it passes, with an effect and without."""
    own, small = settings["no_effect"], settings_for(settings)
    found: dict[str, Any] = {}
    for deployment in DEPLOYMENTS:
        passed = {
            effect: [checks_of(made_log(deployment, effect, k, own), small) for k in range(own["logs"])]
            for effect in (True, False)
        }
        claims = [text.partition(": ")[0] for text in passed[True][0]]
        counts = (np.array([list(one.values()) for one in passed[effect]]).sum(axis=0) for effect in (True, False))
        found[deployment] = [
            [claim, int(there), int(nothing)] for claim, there, nothing in zip(claims, *counts, strict=True)
        ]
    return {"logs": own["logs"], "claims": found}
