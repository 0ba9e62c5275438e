"""Events a CPU second of RecoGym 0.1.3's own ``generate_logs``; run with the Python that make_peers.sh sets up.

    .venvs/recogym/bin/python peer_recogym.py --items 10 100 1000 10000 --seconds 10

The environment is reco-gym-v1 with K = 5, uniform recommendations and RecoGym's defaults otherwise (number_of_flips 0).
An event is a row of the log (a view, or a recommendation with its outcome) without the last row of each user: RecoGym
adds there, after the user has left, a recommendation that nobody sees. Making the environment and its catalogue is
timed apart.
"""

import argparse
import json
import platform
import time
from importlib.metadata import version

from recogym_shim import make_env

PACKAGES = ("recogym", "gym", "numpy", "scipy", "pandas", "numba")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--items", type=int, nargs="+", default=[10, 100, 1000, 10000], help="catalogue sizes")
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--users", type=int, help="users of each size, in one call of generate_logs")
    length.add_argument(
        "--seconds", type=float, default=10.0, help="least CPU seconds of each size, in calls of --batch"
    )
    parser.add_argument("--batch", type=int, default=100, help="users of one call with --seconds")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def measure(n_items, options):
    """Time RecoGym with one catalogue size; returns a row of results."""
    start = time.process_time()
    env = make_env({"num_products": n_items, "K": 5, "random_seed": options.seed})
    setup = time.process_time() - start
    batch = options.users or options.batch
    target = 0.0 if options.users else options.seconds
    rates = []
    n_users = n_events = 0
    cpu = 0.0
    wall_start = time.perf_counter()
    while not n_users or cpu < target:
        start = time.process_time()
        log = env.generate_logs(batch)
        taken = time.process_time() - start
        events = len(log) - batch  # without the row after leaving: exactly one a user
        cpu += taken
        n_users += batch
        n_events += events
        rates.append(events / taken)
    return {
        "items": n_items,
        "users": n_users,
        "events": n_events,
        "phantom_rows": n_users,
        "setup_cpu_seconds": setup,
        "cpu_seconds": cpu,
        "wall_seconds": time.perf_counter() - wall_start,
        "events_per_cpu_second": n_events / cpu,
        "slowest_call": min(rates),
        "fastest_call": max(rates),
    }


def main():
    options = arguments()
    make_env({"num_products": 10, "random_seed": options.seed}).generate_logs(2)  # compiles and imports, untimed
    rows = []
    for n_items in options.items:
        row = measure(n_items, options)
        rows.append(row)
        print(
            f"{row['items']:>7,} items: {row['events_per_cpu_second']:>8,.0f} events a CPU second "
            f"({row['events']:,} events of {row['users']:,} users in {row['cpu_seconds']:.1f} s; "
            f"set-up {row['setup_cpu_seconds']:.3f} s)",
            flush=True,
        )
    result = {
        "peer": "RecoGym",
        "unit": "events per CPU second",
        "python": platform.python_version(),
        "packages": {name: version(name) for name in PACKAGES},
        "seed": options.seed,
        "results": rows,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
