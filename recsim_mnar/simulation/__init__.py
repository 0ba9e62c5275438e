"""A world and a policy make a log: decision by decision, slate by slate, campaign by campaign."""

from recsim_mnar.simulation.items import map_shards, simulate, simulate_shard

__all__ = ["map_shards", "simulate", "simulate_shard"]
