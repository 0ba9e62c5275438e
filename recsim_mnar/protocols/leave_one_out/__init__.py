"""Hit rates of held-out views."""

from recsim_mnar.protocols.leave_one_out.protocol import held_out_views, leave_one_out

__all__ = ["held_out_views", "leave_one_out"]
