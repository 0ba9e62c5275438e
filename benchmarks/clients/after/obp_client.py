from shared import P, agent, log

with __import__("warnings").catch_warnings():
    from obp.ope import InverseProbabilityWeighting, OffPolicyEvaluation

target = agent("user-popularity")
# --- the client's own lines
from recsim_mnar.export import action_dist, decisions, distributions, to_obp

feedback, dist = to_obp(decisions(log, P)), action_dist(distributions(log, target))
# --- end
ope = OffPolicyEvaluation(bandit_feedback=feedback, ope_estimators=[InverseProbabilityWeighting()])
print(f"ipw {ope.estimate_policy_values(action_dist=dist)['ipw']:.12f}, context {feedback['context'].sum():.0f}")
