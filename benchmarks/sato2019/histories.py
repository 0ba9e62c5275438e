"""Where logs come from: the files after the paper's filters, or a synthetic world."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from semi import SOURCES, log_of
from window import RealLog

from recsim_mnar.datasets.purchase_history import PurchaseHistory
from recsim_mnar.errors import UserError
from recsim_mnar.worlds.purchases import PurchasesParams, PurchasesWorld

LOGS = ("dunnhumby", "tafeng", "xing")


def history_of(name: str, files: dict[str, Path | None], **options: Any) -> PurchaseHistory:
    """A log after the paper's filters.

    Raises:
        UserError: its data is not given.
    """
    path = files[name]
    if path is None:
        raise UserError(f"{name} needs --{name}: {SOURCES[name]}")
    if name == "dunnhumby":
        from recsim_mnar.datasets.dunnhumby import load_dunnhumby

        return load_dunnhumby(path, **options)
    if name == "xing":
        from recsim_mnar.datasets.xing import load_xing

        return load_xing(path, **options)
    from recsim_mnar.datasets.tafeng import load_tafeng

    return load_tafeng(path, **options)


def log_from(history: PurchaseHistory, name: str, n_test: int, folder: Path | None = None) -> RealLog:
    """A log of a history; of Xing with what users and postings have in common, read from ``folder``."""
    matches = None
    if name == "xing" and folder is not None:
        from recsim_mnar.datasets.xing import load_matches

        matches = load_matches(folder, history)
    return RealLog(name, history.exposures(), history.present, np.asarray(history.items).astype(str), n_test, matches)


def made_up(name: str, n_test: int, *, n_users: int = 80, n_items: int = 60, n_periods: int = 12) -> RealLog:
    """A log of a synthetic world, for --quick and the tests."""
    params = PurchasesParams(n_items=n_items, n_periods=n_periods, slate_size=15, base=-2.5, effect=0.75)
    exposures = log_of(PurchasesWorld(params), n_users, n_periods, 7).with_propensities(None)
    present = np.zeros((n_users, n_periods), bool)
    present[exposures.user, exposures.time] = True
    return RealLog(name, exposures, present, np.arange(n_items).astype(str), n_test)


def statistics(files: dict[str, Path | None], quick: bool) -> dict[str, Any]:
    """Table 3: sizes of the logs that are given."""
    found = {}
    for name in LOGS:
        if files[name] is not None:
            history = history_of(name, files)
            found[name] = {"sizes": history.statistics(), "notes": list(history.notes)}
    if not found and not quick:
        history_of(LOGS[0], files)  # says what is missing
    return {"logs": found} if found else {}
