"""Events a CPU second of RecoGym 0.1.3's own ``generate_logs``; run with the Python that make_peers.sh sets up.

    .venvs/recogym/bin/python peer_recogym.py --items 100 --seconds 10

The environment is reco-gym-v1 with K = 5, uniform recommendations and RecoGym's defaults otherwise (number_of_flips 0).
An event is a row of the log (a view, or a recommendation with its outcome) without the last row of each user: RecoGym
adds there, after the user has left, a recommendation that nobody sees. Making the environment and its catalogue is
not timed.
"""

import argparse
import json
import time

from recogym_shim import make_env

BATCH, SEED = 100, 1


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--items", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=10.0, help="least CPU seconds")
    options = parser.parse_args()
    make_env({"num_products": 10, "random_seed": SEED}).generate_logs(2)  # compiles and imports, untimed
    env = make_env({"num_products": options.items, "K": 5, "random_seed": SEED})
    events, began = 0, time.process_time()
    while not events or time.process_time() - began < options.seconds:
        events += len(env.generate_logs(BATCH)) - BATCH  # without the row after leaving: exactly one per user
    print(json.dumps({"rate": events / (time.process_time() - began)}))


if __name__ == "__main__":
    main()
