"""``python -m recsim_mnar.cli``."""

from recsim_mnar.cli import main

main()
