"""The files from which goldens are made: logs of the worlds, files as people bring them, and files that are no data."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import package as p
import pandas as pd
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
from interfaces import Setting, digest

Commands = dict[str, list[str]]
ROWS, ACTIONS = 240, 4


def _words(text: str) -> list[str]:
    return text.split()


# ------------------------------------------------------------------------------------- what commands write, read back

SESSIONS = "--world sessions --preset recogym-v1 --set n_items=12"
LOGS: Commands = {
    name: _words(text)
    for name, text in {
        "sessions": f"{SESSIONS} --policy user-popularity --users 40 --train-users 20",
        "sessions, arrow": f"{SESSIONS} --policy item-knn+epsilon=0.2 --users 40 --train-users 20 --format arrow",
        "ratings": "--world ratings --preset quick --policy random --users 40",
        "campaigns": "--world campaigns --preset quick --policy house --users 200",
        "purchases": "--world purchases --preset quick --policy house --users 40",
        "features": "--world features --preset quick --policy random --users 40",
    }.items()
}
QUICK_LOGS = ("sessions", "sessions, arrow", "ratings")
REPLAYS: Commands = {
    "replayed.parquet": ["sessions/log", "--policy", "random,item-knn+epsilon=0.1", "--train", "sessions, arrow/log"],
    "replayed.csv": ["sessions/log", "--policy", "popularity+epsilon=0.3", "--train", "sessions, arrow/log"],
    "replayed.arrow": ["sessions, arrow/log", "--policy", "random", "--items", "12"],
}


def table_digest(path: Path) -> str:
    """Values and names with types of the columns of a file."""
    if path.suffix == ".csv":
        frame = pd.read_csv(path)
    else:
        frame = (pq.read_table(path) if path.suffix == ".parquet" else feather.read_table(path)).to_pandas()
    columns = {str(name): _plain(frame[name]) for name in frame.columns}
    return f"{digest(columns)[:10]} " + " ".join(f"{name}:{values.dtype}" for name, values in columns.items())


def _plain(values: Any) -> Any:
    found = values.to_numpy()
    return found if found.dtype.kind in "biuf" else found.astype("U")


# --------------------------------------------------------------------------------------------------- files of one's own


def own_table() -> pd.DataFrame:
    """Decisions of 48 users, of an agent that knows one thing about them."""
    rng = np.random.default_rng(29)
    segment = rng.integers(0, 3, ROWS)
    laws = np.array([[0.4, 0.3, 0.2, 0.1], [0.1, 0.2, 0.3, 0.4], [0.25, 0.25, 0.25, 0.25]])
    new = np.array([[0.1, 0.2, 0.3, 0.4], [0.1, 0.1, 0.2, 0.6], [0.5, 0.2, 0.2, 0.1]])
    action = np.array([rng.choice(ACTIONS, p=laws[each]) for each in segment])
    row = np.arange(ROWS)
    reward = (rng.random(ROWS) < 0.1 + 0.1 * action).astype(int)
    return pd.DataFrame(
        {
            "user": row // 5,
            "time": row % 5,
            "segment": segment,
            "action": action,
            "reward": reward,
            "propensity": laws[segment, action],
            "new": new[segment, action],
            "old": laws[segment, action],
            "mixed": (0.5 * new[segment, action] + 0.5 * laws[segment, action]).round(4),
            "gain": (reward * rng.normal(5, 1, ROWS)).round(3),
            "most": np.full(ROWS, 9.0),
            "q_logged": np.full(ROWS, 0.2),
            "q_new": (0.1 + 0.05 * segment).round(3),
            "lost": np.full(ROWS, 0.02),
            "logger": np.where(row % 2, "east", "west"),
        }
    )


def estimates() -> Commands:
    """Writes the files of one's own; the arguments of an estimate by what is special about it."""
    table = own_table()
    _written(table)
    few = "--target new --estimators ips,snips"
    model = "--fit-reward-model --estimators dm,dr,clipped_dr,sndr,switch_dr,dros,sg_dr --clip 3"
    return {
        name: _words(text)
        for name, text in {
            "CSV": f"own.csv {few}",
            "tabs": f"own.tsv {few}",
            "semicolons and decimal commas": f"european.csv {few}",
            "Parquet": f"own.parquet {few}",
            "Parquet of small groups and dictionaries": f"groups.parquet {few}",
            "Arrow": f"own.arrow {few}",
            "folder of parts": f"parts {few}",
            "own names": "named.csv --target p_new --reward-column paid --propensity-column p_shown --user-column who",
            "no column of actions": f"short.csv {few}",
            "no column of users": f"users.csv {few}",
            "texts and dates": f"texts.csv {few}",
            "views and recommendations": f"events.csv {few}",
            "continuous rewards": f"own.csv {few} --reward-column gain --reward-min 0 --reward-max 12",
            "largest rewards by row": f"own.csv {few} --reward-column gain --reward-min 0 --reward-limit-column most",
            "today": f"own.csv {few} --baseline today",
            "a baseline": "own.csv --target new,mixed --baseline old",
            "clusters": f"own.csv {few} --user-column segment",
            "every estimator of weights": "own.csv --target new --clip 2 --estimators ips,clipped_ips,snips,"
            "sg_ips,beta_ips,ix_ips,replay",
            "a reward model": f"own.csv --target law --target-file laws.csv --on segment {model}",
            "bounds": f"own.csv {few} --weight-max 8 --propensity-min 0.05 --full-support",
            "level": f"own.csv {few} --level 0.8",
            "refuters": f"own.csv {few} --refute",
            "refuters and context": f"own.parquet {few} --refute --context-columns segment",
            "loggers": f"own.csv {few} --logger-column logger",
            "missing mass": f"lost.csv {few}",
            "missing values": f"missing.csv {few} --drop-missing",
            "repeated rows": f"repeated.csv {few} --deduplicate",
            "no propensities": f"unknown.csv {few}",
            "no propensities, in context": f"unknown.csv {few} --context-columns segment",
            "target file, a column per action": "own.csv --target law --target-file laws.csv --on segment",
            "target file, a column per policy": "own.csv --target a,b --target-file policies.csv --on row",
            "target file and reward model": "own.csv --target law --target-file laws.csv --on segment "
            "--fit-reward-model --estimators dm,dr --context-columns time",
            "a log of ours": "ours --target random,popularity --estimators ips,clipped_ips,snips --clip 5",
            "a log of ours, by two": "ours --target random --baseline today",
        }.items()
    }


def _written(table: pd.DataFrame) -> None:
    table = table.assign(row=np.arange(ROWS))
    table.to_csv("own.csv", index=False)
    table.to_csv("own.tsv", sep="\t", index=False)
    table.rename(columns={"lost": "new_unsupported"}).to_csv("lost.csv", index=False)
    table.to_csv("european.csv", sep=";", decimal=",", index=False)
    arrow = pa.Table.from_pandas(table, preserve_index=False)
    pq.write_table(arrow, "own.parquet")
    pq.write_table(arrow, "groups.parquet", row_group_size=50, compression="zstd", use_dictionary=True)
    feather.write_feather(arrow, "own.arrow", compression="uncompressed")
    Path("parts").mkdir()
    for number in range(3):
        pq.write_table(arrow.slice(80 * number, 80), f"parts/part-{number:05}.parquet")
    names = {"reward": "paid", "propensity": "p_shown", "user": "who", "new": "p_new"}
    table[[*names]].rename(columns=names).to_csv("named.csv", index=False)
    table[["user", "reward", "propensity", "new"]].to_csv("short.csv", index=False)
    table[["reward", "propensity", "new"]].to_csv("users.csv", index=False)
    dates = pd.to_datetime("2024-03-01") + pd.to_timedelta(table["row"], unit="h")
    table.assign(user="u" + table["user"].astype(str), time=dates).to_csv("texts.csv", index=False)
    views = table.assign(event="recommendation", item=-1)
    seen = views.assign(event="view", item=views["action"], reward=np.nan, propensity=np.nan, new=np.nan)
    pd.concat([seen, views]).sort_values(["user", "time", "event"]).to_csv("events.csv", index=False)
    table.mask(table["row"] % 17 == 0).assign(user=table["user"]).to_csv("missing.csv", index=False)
    pd.concat([table, table[:12]]).to_csv("repeated.csv", index=False)
    table[["user", "time", "segment", "action", "reward", "new"]].to_csv("unknown.csv", index=False)
    laws = {"segment": [0, 1, 2], "0": [0.1, 0.4, 0.25], "1": [0.2, 0.3, 0.25], "2": [0.3, 0.2, 0.25]}
    pd.DataFrame({**laws, "3": [0.4, 0.1, 0.25]}).to_csv("laws.csv", index=False)
    policies = table[["row"]].assign(a=table["new"], b=table["mixed"])
    policies[::-1].to_csv("policies.csv", index=False)
    _ours()


def _ours() -> None:
    """A log of ours in parts, with the probabilities of two policies."""
    p.command_line("simulate", *LOGS["sessions"], "--seed", 5, "--out", "run")
    p.command_line("simulate", *LOGS["sessions"], "--seed", 6, "--out", "others")
    p.command_line("replay", "run/log", "--policy", "random,popularity", "--train", "others/log", "--out", "ours")
    shutil.rmtree("run")


def leaves(value: Any) -> tuple[list[str], list[str]]:
    """The bits of all numbers of a JSON value, and all its texts, each in the order of the file."""
    if isinstance(value, dict | list):
        found = [leaves(each) for each in (value.values() if isinstance(value, dict) else value)]
        return [n for numbers, _ in found for n in numbers], [t for _, texts in found for t in texts]
    if isinstance(value, str):
        return [], [value]
    return [value.hex() if isinstance(value, float) else repr(value)], []


def wrong() -> Commands:
    """Writes files that are no data; the arguments of an estimate by what is wrong."""
    table = own_table().assign(row=np.arange(ROWS))
    places = {
        "negative": ("propensity", -0.1),
        "zero": ("propensity", 0.0),
        "above": ("new", 1.5),
        "infinite": ("reward", np.inf),
    }
    for name, (column, value) in places.items():
        table.assign(**{column: table[column].where(table["row"] != 7, value)}).to_csv(f"{name}.csv", index=False)
    table.assign(reward=table["reward"].astype(str).where(table["row"] != 7, "perhaps")).to_csv("word.csv", index=False)
    table.mask(table["row"] == 7).to_csv("hole.csv", index=False)
    table[:0].to_csv("none.csv", index=False)
    Path("empty.csv").write_text("")
    Path("latin.csv").write_bytes(b"reward,propensity,new,caf\xe9\n1,.5,.5,1\n0,.5,.5,1\n")
    Path("twice.csv").write_text("reward,propensity,new,new\n1,.5,.5,.5\n")
    pq.write_table(pa.Table.from_pandas(table, preserve_index=False), "cut.parquet")
    Path("cut.parquet").write_bytes(Path("cut.parquet").read_bytes()[:-40])
    Path("own.csv.gz").write_bytes(gzip.compress(Path("hole.csv").read_bytes(), mtime=0))
    Path("folder").mkdir()
    names = [*places, "word", "hole", "none", "empty", "latin", "twice", "absent"]
    files = {name: [f"{name}.csv", "--target", "new"] for name in names}
    return {
        **files,
        "compressed": ["own.csv.gz", "--target", "new"],
        "cut": ["cut.parquet", "--target", "new"],
        "folder without parts": ["folder", "--target", "new"],
        "no such column": ["above.csv", "--target", "knew"],
        "no such estimator": ["above.csv", "--target", "new", "--estimators", "ipss"],
    }


# ---------------------------------------------------------------------------------------------------------------- JSON


def jsons(*, quick: bool) -> Commands:
    """Writes what they need; the arguments of the commands that write JSON into the folder ``json``."""
    Path("json").mkdir()
    own_table().to_csv("own.csv", index=False)
    estimate = "own.csv --target new --estimators ips,snips --baseline today --refute"
    found = {
        **{f"list {name}": name for name in ("worlds", "agents", "estimators", "protocols", "presets")},
        "describe agent": "describe agent svd",
        "describe world": "describe world sessions",
        "describe estimator": "describe estimator snips",
        "describe protocol": "describe protocol loocv",
        "doctor": "doctor own.csv --target new",
        "estimate": f"estimate {estimate}",
        "estimate with page": f"estimate {estimate} --out json/estimate-page",
        "simulate": f"simulate {SESSIONS} --policy random --users 60 --truth --out run",
        "verify": "verify run/log",
    }
    longer = {
        "replay": "replay run/log --policy random --out replayed.parquet",
        "plan ab": "plan ab own.csv --lift 30%",
        "compare": "compare --preset quick --set n_items=20 --set n_flips=4 --agents random,popularity,user-popularity "
        "--option train_users=40 --option test_users=60 --option arm_users=60 --option truth_users=80 "
        "--out json/compare",
        "compare ratings": "compare --world ratings --set n_items=30 --option users=40 --out json/ratings",
        "compare campaigns": "compare --world campaigns --preset quick --out json/campaigns",
        "compare purchases": "compare --world purchases --preset quick --agents random,popularity --option users=60 "
        "--option test_periods=2 --out json/purchases",
        "compare interactions": "compare --interactions views.csv --out json/interactions",
        "study": "study settings.toml --catalogues 2 --workers 1 --out json/study",
        "check": "check recsim_mnar.agents.baselines:Popularity",
        "calibrate": "calibrate run/log --ensemble 1 --out world.toml",
        "validate": "validate sessions run/log --set n_items=12",
    }
    if not quick:
        _for_the_longer()
        found |= longer
    return {name: [*_words(text), "--json", f"json/{name}.json"] for name, text in found.items()}


def _for_the_longer() -> None:
    rng = np.random.default_rng(7)
    views = {"user": np.repeat(np.arange(40), 6), "item": rng.integers(0, 15, 240), "time": np.tile(np.arange(6), 40)}
    pd.DataFrame(views).to_csv("views.csv", index=False)
    Path("settings.toml").write_text(
        'agents = ["random", "popularity"]\n[[worlds]]\nworld = "sessions"\npreset = "quick"\n'
        "[worlds.params]\nn_items = 20\nn_flips = 4\n"
        "[worlds.options]\ntrain_users = 30\ntest_users = 40\narm_users = 40\ntruth_users = 50\n"
    )


# -------------------------------------------------------------------------------------------------------------- classes


def stored_class(settings: list[Setting], spec: str) -> str | None:
    """The ``module:Class`` in a saved agent; None where it is not saved, or fitted on no log of these worlds."""
    for setting in settings:
        with p.not_here():
            policy = p.learner(spec).fit(setting.train, n_items=setting.made.n_items, seed=1)
            policy.save("agent.npz")
            with np.load("agent.npz", allow_pickle=False) as held:
                return str(json.loads(str(held["__meta__"]))["class"])
    return None
