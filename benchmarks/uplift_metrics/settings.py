"""The study: which metric picks the agent with the largest true uplift, over catalogues of the purchases world."""

PRESETS = ("personalised", "popularity", "uniform", "quick")
CATALOGUES = 10
AGENTS = ("random", "popularity", "rmf", "bpr", "ulrmf", "ulbpr", "recresp", "dlce", "cubn", "cibn")
LEVEL = 0.95
