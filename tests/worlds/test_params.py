"""Parameters of the sessions world by RecoGym's names."""

from __future__ import annotations

from recsim_mnar.worlds.sessions import SessionsParams

NAMES = {
    "num_products": ("n_items", 30),
    "K": ("n_factors", 7),
    "sigma_omega": ("sigma_omega", 0.2),
    "number_of_flips": ("n_flips", 4),
    "sigma_mu_organic": ("sigma_mu_organic", 0.5),
    "change_omega_for_bandits": ("drift_in_bandit", True),
    "prob_leave_bandit": ("p_leave_bandit", 0.02),
    "normalize_beta": ("normalize_beta", True),
    "random_seed": ("catalogue_seed", 9),
    "normal_time_mu": ("clock_mean", 1),
    "normal_time_sigma": ("clock_sd", 0.5),
}


def test_recogym_names():
    theirs = {name: value for name, (_, value) in NAMES.items()}
    clock = type("NormalTimeGenerator", (), {})()
    params = SessionsParams.from_recogym({**theirs, "num_users": 100, "phi_var": 0.1, "time_generator": clock})
    assert params == SessionsParams(clock="normal", **dict(NAMES.values()))
