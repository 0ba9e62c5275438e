"""Statistical models that agents and worlds share: factorisations, bandit logs, ordinal ratings, product kernels."""
