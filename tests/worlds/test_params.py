"""Parameters of the sessions world by RecoGym's names, and by keywords."""

from __future__ import annotations

from recsim_mnar.worlds.sessions import SessionsParams


def test_keywords():
    assert SessionsParams().with_keywords({"n_items": 7}).n_items == 7


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
