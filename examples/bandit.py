"""Bandits that learn while they act: one object meets every user, and its log replays from the untrained object.

python examples/bandit.py
"""

from recsim_mnar import Log, make_world, replay, simulate_online
from recsim_mnar.policies import registry

world = make_world("sessions", None, ["n_items=10"])
for name in ("random", "epsilon-greedy", "ucb1", "lin-ucb", "lin-thompson"):
    untrained = registry.learner(name).fit(Log({}), n_items=world.n_items, seed=0)
    run = simulate_online(world, untrained, n_users=600, seed=1, lanes=32)
    shown = run.log.is_bandit
    same = (replay(run.log, untrained)[shown] == run.log["propensity"][shown]).mean()
    half, end = run.curve.decisions.size // 2, run.curve.decisions[-1]
    late = (run.curve.rewards[-1] - run.curve.rewards[half]) / (end - run.curve.decisions[half])
    print(f"{name:16s} CTR {run.curve.mean_rewards[-1]:.5f}, later half {late:.5f}; {same:.1%} of {end:,} replayed")
