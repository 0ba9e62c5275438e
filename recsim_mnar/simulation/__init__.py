"""A world and a policy make a log: decision by decision, slate by slate, campaign by campaign."""

from recsim_mnar.simulation.executor import workers
from recsim_mnar.simulation.items import iter_shards, simulate, simulate_shard

__all__ = ["iter_shards", "simulate", "simulate_shard", "workers"]
