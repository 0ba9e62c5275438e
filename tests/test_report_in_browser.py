"""Report pages in a browser: nothing wrong at a desk, on a telephone, in the dark, in print, or for a screen reader."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from recsim_mnar.answers.records import estimate_columns
from recsim_mnar.answers.weights import weight_distribution
from recsim_mnar.fitting.validation import Check, Validation
from recsim_mnar.log.columns import LogColumns
from recsim_mnar.own_log.bandit_file import WeighedLog
from recsim_mnar.protocols.ab_test import popularity
from recsim_mnar.protocols.comparison import Comparison
from recsim_mnar.protocols.records import Ranking, Target, judge
from recsim_mnar.report.estimate_page import Estimates, write_estimates
from recsim_mnar.report.page import write_page
from recsim_mnar.report.world_pages import write_validation
from toys import record

LOOK = Path(__file__).parent / "browser" / "look.cjs"
DOCS = Path(__file__).resolve().parents[1] / "docs"
REPORT = DOCS.parent / "recsim_mnar" / "report"
TITLES = ["leave-one-out (HR@1)", "clipped IPS", "A/B test"]
HOSTILE = ["<script>alert(1)</script>", "a" * 300, "\u05d0\u05d1\u05d2", "quote\" ' &amp;", "$price$"]


def browser() -> str:
    executable = next((path for name in ("chromium", "google-chrome", "chrome") if (path := shutil.which(name))), None)
    if executable is None:
        pytest.skip("no Chromium on this machine")
    if shutil.which("node") is None:
        pytest.skip("no node on this machine")
    names = ["axe-core", "puppeteer-core"]
    script = f"for (const name of {json.dumps(names)}) require.resolve(name)"
    if subprocess.run(["node", "-e", script], capture_output=True, check=False).returncode:
        pytest.skip("axe-core and puppeteer-core are not on NODE_PATH (npm install axe-core puppeteer-core)")
    return executable


def comparison(agents: list[str]) -> Comparison:
    keys = [("loocv", "hr@1"), ("off_policy", "clipped_ips"), ("ab_test", "ctr"), ("truth", "ctr")]
    wide = [(f"own-{i}", f"metric-{i}") for i in range(12)]
    about = {"users": 50, "verdict": "trust", "ess": 5.0, "share_supported": 1.0, "value_on_log": 0.1}
    records = [
        record(protocol, agent, 0.1 + 0.01 * ((i * (k + 1)) % 5), metric, 0.03, **about)
        for k, (protocol, metric) in enumerate([*keys, *wide])
        for i, agent in enumerate(agents)
    ]
    target = Target("ctr", "CTR")
    rankings = [Ranking(*key, title, target) for key, title in zip(keys[:3], TITLES, strict=True)]
    rng = np.random.default_rng(0)
    weights = [weight_distribution(a, np.exp(rng.normal(size=500)) * (rng.random(500) < 0.5), 3.0) for a in agents]
    shown = popularity(np.arange(40), {agent: rng.integers(0, 50, 40) for agent in agents})
    details = {"clip": 3.0, "weights": [vars(each) for each in weights], "popularity": shown}
    again = "recsim-mnar compare --catalogues 20"
    return Comparison(records, judge(records, rankings), columns=keys, again=again, details=details)


def validation() -> Validation:
    lines = {"kind": "cumulative", "axis": "item", "entries": HOSTILE, "real": [0.1] * 5, "simulated": [0.2] * 5,
             "low": [0.0] * 5, "high": [0.3] * 5}  # fmt: skip
    numbers = {"real": 1.0, "simulated": 2.0, "distance": 0.5, "chance": 0.1, "visible": 0.2}
    checks = [
        Check(name=name, kind="statistic", question=name, what=name, tolerance=0.1, p=0.04, p_adjusted=0.4,
              grade=grade, says=name, picture=lines if i % 2 else {}, **numbers)
        for i, (name, grade) in enumerate(zip(HOSTILE, ["matches", "close", "off", "cannot say", "off"], strict=True))
    ]  # fmt: skip
    return Validation(checks, HOSTILE, HOSTILE)


def estimates() -> Estimates:
    """Estimates of policies of every kind: one that the log covers in part, one with a doubtful clip, today's."""
    rng = np.random.default_rng(0)
    reward, propensity = (rng.random(400) < 0.2) * 1.0, rng.choice([0.2, 0.8], 400)
    columns = {name: rng.choice([0.1, 0.8], 400) for name in HOSTILE} | {"thin": np.full(400, 0.01)}
    log = LogColumns(reward, propensity, None, columns | {"propensity": propensity}, np.arange(400))
    asked = {"baseline": "propensity", "estimators": ("ips", "snips", "clipped_ips"), "clip": 1.5}
    weights = {name: column / propensity for name, column in columns.items()}
    lines = [f"taken: {name}" for name in HOSTILE]
    return Estimates(
        HOSTILE[0], estimate_columns(log, list(columns), **asked), lines, WeighedLog(400, None, 0.2, {}, weights), 1.5
    )


def faults(executable: str, pages: list[Path]) -> list[dict]:
    """Return the faults that a browser finds in pages."""
    done = subprocess.run(
        ["node", str(LOOK), executable, *map(str, pages)], capture_output=True, text=True, check=False, env=os.environ,
        timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: list[dict] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def extensions():
    sys.path.insert(0, str(DOCS / "extensions"))
    yield
    sys.path.remove(str(DOCS / "extensions"))


@pytest.fixture(scope="module")
def gallery(extensions):
    import gallery

    return gallery


def test_the_first_screen_of_each_page_has_three_lines(tmp_path, gallery):
    for page in gallery.pages(tmp_path):
        front = re.search(r"(?s)<header.*?</header>", page.read_text())[0]
        assert front.count("<h1>") == 1, page.name
        if page.stem in ("compare", "study"):  # whose protocols and agents have the field's names
            assert "Next: " not in front
            continue
        assert front.count('class="lift"') == front.count('class="next"') == 1, page.name
        assert "propensit" not in front
        assert "\\x" not in front
        assert ("Next: " in front) == (page.stem != "interactions")


def test_the_readmes_picture_has_the_pages_inks_and_is_made_of_the_stored_numbers(gallery):
    stored = json.loads(gallery.STORED.read_text())
    assert (DOCS / "compare.svg").read_text() == gallery.hero(gallery._comparison(stored["compare"]))
    style = (REPORT / "style.css").read_text().split("@media screen and (prefers-color-scheme: dark)")
    for inks, css in zip(gallery._INKS.values(), style, strict=True):
        for name, ink in zip(gallery._NAMES, inks.split(), strict=True):
            assert f"--{name}: {ink};" in css


@pytest.mark.slow
def test_every_page_of_the_gallery_is_fit_for_desk_telephone_dark_and_paper(tmp_path, gallery):
    executable = browser()
    assert faults(executable, gallery.pages(tmp_path)) == []
    gallery.variants(tmp_path)
    assert len(list(tmp_path.glob("*.html"))) == 4 * len(gallery.PAGES)


@pytest.mark.slow
def test_each_slider_of_the_playground_changes_what_it_says(tmp_path, extensions):
    executable = browser()
    import playground

    playground.write(tmp_path / "playground.html")
    assert faults(executable, [tmp_path / "playground.html"]) == []


@pytest.mark.slow
def test_a_report_is_fit_for_desk_telephone_dark_and_paper(tmp_path):
    executable = browser()
    pages = []
    for name, agents in (
        ("plain", ["random", "svd", "item-knn"]),
        ("hostile", HOSTILE),
        ("many", [f"agent-{i}" for i in range(14)]),
    ):
        pages.append(tmp_path / f"{name}.html")
        write_page(pages[-1], comparison(agents), {"seed": 0})
        assert pages[-1].stat().st_size < 3e6
    pages.append(tmp_path / "validation.html")
    write_validation(pages[-1], validation(), {"log": HOSTILE[0]})
    (tmp_path / "estimates").mkdir()
    write_estimates(tmp_path / "estimates", estimates(), {"log": HOSTILE[0]})
    pages.append(tmp_path / "estimates" / "report.html")
    assert faults(executable, pages) == []
