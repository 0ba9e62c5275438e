"""Workers of a Dask cluster: held against this process before they work, and met as any other executor."""

from recsim_mnar.cluster.connection import cluster

__all__ = ["cluster"]
