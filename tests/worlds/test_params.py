"""Parameters of the sessions world: rules, files, RecoGym's names."""

from __future__ import annotations

import pytest

from recsim_mnar.errors import UserError
from recsim_mnar.worlds import WORLDS, make_world
from recsim_mnar.worlds.sessions import PRESETS, SessionsParams


@pytest.mark.parametrize("preset", PRESETS)
def test_round_trips(preset):
    params = PRESETS[preset][0]
    assert SessionsParams.from_toml(params.to_toml()) == params
    assert SessionsParams.from_json(params.to_json()) == params
    assert SessionsParams.from_dict(params.to_dict()) == params
    settings = [f"{name}={value}" for name, value in params.to_dict().items()]
    assert make_world("sessions", "recogym-v1", settings).params == params


BAD = [
    ({"n_items": 0}, "n_items"),
    ({"n_items": 2.5}, "whole number"),
    ({"n_items": "many"}, "whole number"),
    ({"n_factors": 0}, "n_factors"),
    ({"n_flips": 6}, "n_flips"),
    ({"n_flips": -1}, "n_flips"),
    ({"sigma_omega": -0.1}, "sigma_omega"),
    ({"sigma_mu_organic": float("nan")}, "finite"),
    ({"p_organic_to_bandit": 1.2}, "p_organic_to_bandit"),
    ({"p_organic_to_bandit": 0.8, "p_leave_organic": 0.3}, "staying"),
    ({"p_bandit_to_organic": 0.8, "p_leave_bandit": 0.3}, "staying"),
    ({"p_leave_organic": 0.0, "p_leave_bandit": 0.0}, "never leave"),
    ({"clock": "sundial"}, "clock"),
    ({"normalize_beta": "perhaps"}, "true or false"),
    ({"catalogue_seed": -1}, "catalogue_seed"),
    ({"n_itmes": 3}, "n_items"),
]


@pytest.mark.parametrize(("values", "words"), BAD, ids=lambda v: str(v))
def test_bad_values_name_parameter_and_rule(values, words):
    with pytest.raises(UserError, match=words) as caught:
        SessionsParams.from_dict(values)
    assert "\n" not in str(caught.value)


def test_settings_name_the_flag():
    with pytest.raises(UserError, match="--set n_items: write it as name=value"):
        SessionsParams().with_settings(["n_items"])
    with pytest.raises(UserError, match="did you mean 'sigma_omega'"):
        SessionsParams().with_settings(["sigma_omegas=1"])


def test_keywords_are_called_so():
    assert SessionsParams().with_keywords({"n_items": 7}).n_items == 7
    with pytest.raises(UserError, match=r"^unknown keyword 'n_itms'; did you mean 'n_items'\?") as caught:
        make_world("sessions", None, {"n_itms": 5})
    assert "--set" not in str(caught.value)


def test_recogym_names():
    class NormalTimeGenerator:
        pass

    args = {
        "num_products": 30,
        "K": 7,
        "sigma_omega": 0.2,
        "number_of_flips": 4,
        "sigma_mu_organic": 0.5,
        "change_omega_for_bandits": True,
        "prob_leave_bandit": 0.02,
        "normalize_beta": True,
        "random_seed": 9,
        "num_users": 100,
        "phi_var": 0.1,
        "time_generator": NormalTimeGenerator(),
        "normal_time_mu": 1,
        "normal_time_sigma": 0.5,
    }
    params = SessionsParams.from_recogym(args)
    assert params == SessionsParams(
        n_items=30,
        n_factors=7,
        sigma_omega=0.2,
        n_flips=4,
        sigma_mu_organic=0.5,
        drift_in_bandit=True,
        p_leave_bandit=0.02,
        normalize_beta=True,
        catalogue_seed=9,
        clock="normal",
        clock_mean=1.0,
        clock_sd=0.5,
    )
    with pytest.raises(UserError, match="num_products"):
        SessionsParams.from_recogym({"num_product": 3})


def test_unknown_names_of_worlds_and_presets():
    assert set(WORLDS) >= {"sessions"}
    with pytest.raises(UserError, match="did you mean 'sessions'"):
        make_world("session")
    with pytest.raises(UserError, match="did you mean 'jeunen2019'"):
        make_world("sessions", "jeunen2018")
