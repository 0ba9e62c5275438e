"""Learning a policy from a log with propensities, and judging it by another log before anybody is shown anything.

python examples/learning_from_logs.py
"""

from recsim_mnar import Facts, Log, difference, estimate, make_world, replay, simulate
from recsim_mnar.policies import registry

world = make_world("sessions", None, ["n_items=10"])
logging = registry.learner("user-popularity+epsilon=0.3").fit(Log({}), n_items=world.n_items, seed=0)
training, test = (simulate(world, logging, n_users=1500, seed=seed) for seed in (1, 2))
shown = test.bandit()
given = (shown["reward"], shown["propensity"])
stated = {
    "cluster": shown["user"],
    "facts": Facts(propensity_min=0.3 / world.n_items),
}  # epsilon shows every item at times
print(f"{len(shown):,} decisions to judge by; the logging policy earned {given[0].mean():.5f}")
for name in ("reward-cross-entropy", "poem"):
    policy = registry.learner(name).fit(training, n_items=world.n_items, seed=0)
    target = replay(test, policy)[test.is_bandit]
    more = difference(*given, target, given[1], **stated)
    print(f"{name}: {estimate(*given, target, **stated)}")
    print(f"  more than the logging policy by {more.value:+.5f} [{more.low:+.5f}, {more.high:+.5f}]")
    # Unknown outside a simulator: it is shown to other users.
    seen = simulate(world, policy, n_users=1500, seed=3).bandit()["reward"]
    print(f"  shown to others it earns {seen.mean():.5f}")
