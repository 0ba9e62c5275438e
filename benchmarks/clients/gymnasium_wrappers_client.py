import gymnasium as gym
from gymnasium.wrappers import RecordEpisodeStatistics, TransformReward
from shared import SETTINGS

# --- before
env = RecordEpisodeStatistics(TransformReward(gym.make("recsim_mnar/Sessions-v0", **SETTINGS), lambda r: 2.0 * r))
# --- after
env = RecordEpisodeStatistics(TransformReward(gym.make("recsim_mnar/Sessions-v0", **SETTINGS), lambda r: 2.0 * r))
# --- end
env.reset(seed=1)
ended = 0
while ended < 20:
    *_, terminated, truncated, info = env.step(ended % 8)
    if terminated or truncated:
        ended += 1
        env.reset()
print(f"{sum(env.return_queue):.1f} earned in {sum(env.length_queue)} steps")
