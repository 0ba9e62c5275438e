"""calibrate and validate that were interrupted are taken up, and end as if they had not been."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner

from recsim_mnar.cli import cli
from recsim_mnar.errors import UserError
from recsim_mnar.fitting.calibration import calibrate_world
from recsim_mnar.fitting.validation import validate_world
from recsim_mnar.runs import receipts
from recsim_mnar.runs.receipts import made_with
from recsim_mnar.runs.stages import fields_of, in_json, resumable, stage, work
from recsim_mnar.worlds.sessions import SessionsParams, SessionsWorld
from twins.cases import quick_first

NUMBER = in_json(float, float)


class Cut(KeyboardInterrupt):
    """Ctrl-C, at a stage."""


@pytest.fixture
def cut_at(monkeypatch):
    """Interrupts when n stages were made and one more would be."""
    made = []

    def arm(n):
        made.clear()

        def counted(name, make, form):
            def made_here():
                if len(made) == n:
                    raise Cut
                made.append(name)
                return make()

            return stage(name, made_here, form)

        for place in PLACES:
            monkeypatch.setattr(f"{place}.stage", counted)

    return arm


PLACES = [
    f"recsim_mnar.fitting.{place}"
    for place in ("calibration.viewing", "calibration.calibrating", "validation.validating")
]  # fmt: skip


def run(work, folder, cut_at):
    """The work, interrupted before its first stage and after each; returns its result and how often it was cut."""
    cuts = 0
    while True:
        cut_at(min(cuts, 1))
        try:
            with resumable(folder, resume=folder.exists()):
                return work(), cuts
        except Cut:
            cuts += 1
            assert folder.is_dir() == (cuts > 1)


def left_at(folder, of=None, value=1.0):
    """A folder that an interrupted run left, with its stage ``a``."""

    def cut():
        with resumable(folder), work("sum", lambda: of or {"of": 2}):
            assert stage("a", lambda: value, NUMBER) == value
            raise Cut

    with pytest.raises(Cut):
        cut()


def test_a_stage_is_made_once_and_taken_up(tmp_path):
    folder = tmp_path / "kept"
    made = []

    def value(of):
        made.append(of)
        return of

    left_at(folder, value=value(1.5))
    with resumable(folder, resume=True), work("sum", lambda: {"of": 2}):
        assert stage("a", lambda: value(1.5), NUMBER) + stage("b", lambda: value(np.inf), NUMBER) == np.inf
    assert made == [1.5, np.inf]
    assert not folder.exists()


def test_nothing_is_kept_outside_a_resumable_block_and_two_stages_of_a_name_are_a_mistake(tmp_path):
    with work("sum", lambda: pytest.fail("the inputs are not needed")):
        assert [stage("a", lambda i=i: i, NUMBER) for i in (1.0, 2.0)] == [1.0, 2.0]
    with pytest.raises(RuntimeError, match="two stages are called a"), resumable(tmp_path / "kept"):
        [stage("a", lambda i=i: i, NUMBER) for i in (1.0, 2.0)]


def test_a_value_has_the_same_bits_and_lies_alike_whether_it_is_kept_or_not(tmp_path):
    from recsim_mnar.fitting.calibration.viewing import Scales

    odd = np.arange(24.0).reshape(2, 3, 4)[:, :2, ::2]
    odd[0, 0, 0] = np.nan
    value = Scales(0.1, 1e-300, odd[0].T, np.asfortranarray(odd[1]))
    form = fields_of(Scales)
    with resumable(tmp_path / "kept"):
        kept = stage("a", lambda: value, form)
    unkept = stage("a", lambda: value, form)
    for one, other in zip(vars(kept).values(), vars(unkept).values(), strict=True):
        np.testing.assert_array_equal(one, other)
        assert type(one) is type(other)
        assert not isinstance(one, np.ndarray) or one.strides == other.strides


def test_an_interrupted_run_is_not_lost_and_not_mixed_with_another(tmp_path):
    folder = tmp_path / "kept"
    left_at(folder, {"of": 2, "seed": 0})
    with pytest.raises(UserError, match="left by a run that was interrupted: --resume takes it up"), resumable(folder):
        pass
    with (
        pytest.raises(UserError, match=r"a run that differs in seed \(0 there, 1 here\): remove it"),
        resumable(folder, resume=True),
        work("sum", lambda: {"of": 2, "seed": 1}),
    ):
        pass
    with resumable(folder, resume=True), work("sum", lambda: {"of": 2, "seed": 0}):
        assert stage("a", lambda: pytest.fail("it is there"), NUMBER) == 1.0


def test_what_another_state_of_the_package_made_is_refused(tmp_path, monkeypatch):
    folder = tmp_path / "kept"
    left_at(folder)
    monkeypatch.setattr(receipts, "made_with", lambda: {**made_with(), "numpy": "0.1"})
    with (
        pytest.raises(UserError, match=r"other versions: numpy \(.* there, 0.1 here\)"),
        resumable(folder, resume=True),
    ):
        pass


def test_a_damaged_stage_is_made_again(tmp_path):
    folder = tmp_path / "kept"
    left_at(folder)
    (kept,) = folder.glob("sum.a*")
    data = bytearray(kept.read_bytes())
    data[len(data) // 2] ^= 1
    kept.write_bytes(data)
    with resumable(folder, resume=True), work("sum", lambda: {"of": 2}):
        assert stage("a", lambda: 2.0, NUMBER) == 2.0


@pytest.mark.parametrize("error", [UserError("it cannot be"), None], ids=["refused", "disk full"])
def test_what_cannot_be_leaves_nothing_and_a_full_disk_all(error, tmp_path):
    folder = tmp_path / "kept"

    def fail():
        with resumable(folder), work("sum", lambda: {"of": 2}):
            stage("a", lambda: 1.0, NUMBER)
            if error is not None:
                raise error
            raise UserError("cannot be written") from OSError(28, "No space left on device")

    with pytest.raises(UserError):
        fail()
    assert folder.exists() is (error is None)


@pytest.mark.slow
@pytest.mark.parametrize(("of", "world", "stages"), [("small_log", "sessions", 2), ("revealed", "ratings", 1)])
def test_calibration_cut_at_every_stage_ends_as_one_that_was_not(of, world, stages, request, tmp_path, cut_at):
    data = request.getfixturevalue(of)
    whole = calibrate_world(data, world, ensemble=2, seed=5)
    found, cuts = run(lambda: calibrate_world(data, world, ensemble=2, seed=5), tmp_path / "kept", cut_at)
    assert cuts == stages
    assert found.digest() == whole.digest()
    for folder, made in (("whole", whole), ("found", found)):
        made.save(tmp_path / folder / "w.toml")
    one, other = ({p.name: p.read_bytes() for p in (tmp_path / folder).iterdir()} for folder in ("whole", "found"))
    assert one == other


@pytest.mark.slow
@pytest.mark.parametrize("anew", [False, True], ids=["world", "fitted world"])
def test_validation_cut_at_every_stage_ends_as_one_that_was_not(anew, small_log, tmp_path, cut_at):
    world = SessionsWorld(SessionsParams(n_items=12, n_factors=2))
    if anew:
        world = calibrate_world(small_log, ensemble=1)

    def hold():
        return validate_world(world, small_log).to_dict()

    whole = hold()
    found, cuts = run(hold, tmp_path / "kept", cut_at)
    assert cuts >= 8
    assert json.dumps(found) == json.dumps(whole)


def test_a_function_as_world_cannot_be_taken_up(small_log, tmp_path):
    with pytest.raises(UserError, match="cannot be known again"), resumable(tmp_path / "kept"):
        validate_world(lambda log: SessionsWorld(SessionsParams(n_items=12)), small_log)
    assert not (tmp_path / "kept").exists()


def commands(small_log, tmp_path):
    small_log.write(tmp_path / "log")
    world, page = tmp_path / "world.toml", tmp_path / "page.html"
    return {
        "calibrate": (["calibrate", str(tmp_path / "log"), "--ensemble", "1", "--out", str(world)], world),
        "validate": (["validate", "sessions", str(tmp_path / "log"), "--set", "n_items=12", "--checks",
                      "statistics", "--out", str(page)], page),
    }  # fmt: skip


def test_a_finished_world_is_printed_again_and_no_byte_of_it_changes(small_log, tmp_path):
    asked, _ = commands(small_log, tmp_path)["calibrate"]
    said = [*asked, "--json", str(tmp_path / "said.json")]
    first = CliRunner().invoke(cli, said)
    made = {path: path.read_bytes() for path in tmp_path.glob("world.*")}
    assert len(made) == 3
    answer = (tmp_path / "said.json").read_bytes()
    (tmp_path / "said.json").unlink()
    again = CliRunner().invoke(cli, [*said, "--resume"])
    assert (again.exit_code, again.stdout) == (0, first.stdout)
    assert (tmp_path / "said.json").read_bytes() == answer
    assert {path: path.read_bytes() for path in tmp_path.glob("world.*")} == made
    assert CliRunner().invoke(cli, asked).exit_code != 0  # unasked it is refused, as before


@pytest.mark.parametrize(
    ("changed", "named"),
    quick_first(
        [
            (["--seed", "1"], "made_from.seed (0 there, 1 here)"),
            (["--ensemble", "2"], "ensemble (1 there, 2 here)"),
            (["--assume", "click_link=logistic"], 'assume.click_link (null there, "logistic" here)'),
            (["another log"], "made_from.log:"),
            (["no log named"], "made_from:"),
            (["another numpy"], 'numpy ("0.1" there'),
        ]
    ),
)
def test_a_finished_world_of_something_else_is_refused(small_log, tmp_path, changed, named):
    asked, out = commands(small_log, tmp_path)["calibrate"]
    assert CliRunner().invoke(cli, asked).exit_code == 0
    text = out.read_text()
    if changed == ["another log"]:
        reward = small_log["reward"].copy()
        reward[np.flatnonzero(small_log.is_bandit)[0]] = 1.0 - reward[np.flatnonzero(small_log.is_bandit)[0]]
        small_log.with_column("reward", reward).write(tmp_path / "other")
        asked[1] = str(tmp_path / "other")
    elif changed == ["no log named"]:
        out.write_text(text[: text.index("[made_from]")])
    elif changed == ["another numpy"]:
        out.write_text(text.replace(f'numpy = "{np.__version__}"', 'numpy = "0.1"'))
    else:
        asked += changed
    before = out.read_bytes()
    refused = CliRunner().invoke(cli, [*asked, "--resume"])
    assert isinstance(refused.exception, UserError)
    assert str(refused.exception).startswith("cannot resume: ")
    assert named in str(refused.exception)
    assert out.read_bytes() == before


@pytest.mark.slow
@pytest.mark.parametrize("name", ["calibrate", "validate"])
def test_the_command_says_what_was_left_and_takes_it_up(name, small_log, tmp_path, cut_at):
    asked, out = commands(small_log, tmp_path)[name]
    cut_at(1)
    cut = CliRunner().invoke(cli, asked)
    assert cut.exit_code != 0
    left = out.with_name(f"{out.name}.unfinished")
    assert left.is_dir()
    assert not out.exists()
    cut_at(10**9)
    refused = CliRunner().invoke(cli, asked)
    assert isinstance(refused.exception, UserError)
    assert "--resume takes it up" in str(refused.exception)
    again = CliRunner().invoke(cli, [*asked, "--resume"])
    assert again.exit_code == 0, again.output
    assert out.exists()
    assert not left.exists()
    first = out.read_bytes()
    out.unlink()
    out.with_suffix(".npz").unlink(missing_ok=True)
    assert CliRunner().invoke(cli, asked).exit_code == 0
    assert out.read_bytes() == first
