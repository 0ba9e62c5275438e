"""Statistical models that agents and worlds share: factorisations and bandit logs."""
