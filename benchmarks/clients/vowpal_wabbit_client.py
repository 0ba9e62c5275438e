import numpy as np
from shared import P, world
from vowpalwabbit import Workspace

from recsim_mnar.policies import Policy


# --- before
class Wabbit(Policy):
    name, n_items, learns = "wabbit", P, "all users"

    def __init__(self):
        self.counts, self.workspace = {}, Workspace(f"--cb_explore {P} --epsilon 0.2 --quiet")

    # + reset observe

    def text(self, user):
        seen = self.counts[user]
        return " ".join(f"f{k}:{seen[k].item()}" for k in np.flatnonzero(seen))

    def probabilities(self, users):
        shares = np.array([self.workspace.predict(f"| {self.text(user)}") for user in users.tolist()])
        return shares / shares.sum(axis=1, keepdims=True)

    # + act

    def learn(self, users, actions, rewards, propensities):
        for user, a, r, p in zip(users.tolist(), actions, rewards, propensities, strict=True):
            self.workspace.learn(f"{a + 1}:{0.0 - r}:{p} | {self.text(user)}")

    def fresh(self):
        return Wabbit()


# --- before, not counted
from recsim_mnar.simulation.items import simulate_online

# --- before
policy = Wabbit()
# --- after
from recsim_mnar.integrations.vowpal_wabbit import VowpalWabbit
from recsim_mnar.simulation.items import simulate_online  # noqa: F811

policy = VowpalWabbit("--epsilon 0.2", P)
# --- end
run = simulate_online(world, policy, n_users=60, seed=9, lanes=8)
shown = run.log.is_bandit
print(f"online {shown.sum()} decisions, propensities {run.log['propensity'][shown].sum():.4f}")
