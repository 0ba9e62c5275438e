"""Environments of slates, recorded, give the log of ``simulate``."""

from __future__ import annotations

import pytest

from recsim_mnar.policies import registry
from recsim_mnar.purchases.envs import PurchasesEnv, PurchasesVectorEnv
from recsim_mnar.purchases.policies import DeployedPolicy, SlatePolicy
from recsim_mnar.purchases.world import PurchasesParams, PurchasesWorld
from recsim_mnar.simulation import simulate


@pytest.mark.parametrize("name", ["deployed", "user-popularity-greedy"])
def test_every_face_tells_the_same_lives(modules_of, name):
    recorder = modules_of("reproducibility", "slate_recorder")["slate_recorder"]
    world = PurchasesWorld(PurchasesParams(n_items=12, n_periods=4, slate_size=3, base=-1.0, slates="fixed"))
    deployed = DeployedPolicy(world)
    train = simulate(world, deployed, 30, 1)
    policy = (
        deployed if name == "deployed" else SlatePolicy(registry.learner(name).fit(train, n_items=12), world.params)
    )
    log = simulate(world, policy, 17, 9)
    assert recorder.record_slates(PurchasesEnv(world), policy, 17, 9).digest() == log.digest()
    for lanes in (1, 4, 20):
        assert recorder.record_slates_vector(PurchasesVectorEnv(world, lanes), policy, 17, 9).digest() == log.digest()
