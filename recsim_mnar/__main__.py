"""``python -m recsim_mnar``: the command line."""

from recsim_mnar.cli import main

main()
