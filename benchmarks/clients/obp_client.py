import numpy as np
from shared import P, agent, log

from recsim_mnar.replays.probabilities import rounds_of

with __import__("warnings").catch_warnings():
    from obp.ope import InverseProbabilityWeighting, OffPolicyEvaluation

target = agent("user-popularity")

# --- before
shown = np.flatnonzero(log.is_bandit)
place = {row: number for number, row in enumerate(shown.tolist())}
context, counts, whole = np.zeros((len(shown), P)), {}, np.zeros((len(shown), P))
acting = target.fresh()
acting.reset(log.users())
for _, views, rows, *_ in rounds_of(log, one_by_one=False):
    acting.observe(log["user"][views], log["item"][views])
    for user, item in zip(log["user"][views].tolist(), log["item"][views].tolist(), strict=True):
        counts.setdefault(user, np.zeros(P))[item] += 1
    for row in rows.tolist():
        context[place[row]] = counts.get(log["user"][row], np.zeros(P))
    if len(rows):
        whole[[place[row] for row in rows.tolist()]] = acting.probabilities(log["user"][rows])
feedback = {"n_rounds": len(shown), "n_actions": P, "context": context, "position": np.zeros(len(shown), int)}
feedback |= {"action": log["action"][shown], "reward": log["reward"][shown], "pscore": log["propensity"][shown]}
dist = whole[:, :, None]
# --- after
from recsim_mnar.export import action_dist, decisions, distributions, to_obp

feedback, dist = to_obp(decisions(log, P)), action_dist(distributions(log, target))
# --- end
ope = OffPolicyEvaluation(bandit_feedback=feedback, ope_estimators=[InverseProbabilityWeighting()])
print(f"ipw {ope.estimate_policy_values(action_dist=dist)['ipw']:.12f}, context {feedback['context'].sum():.0f}")
