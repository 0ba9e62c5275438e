"""The peers, each run by the Python of its own environment (make_peers.sh): peers.py NAME ARGUMENT ...; prints JSON.

One thread each, with the peer's own defaults. What is timed here does not use PyTorch. Interactions are an .npz file
with ``indptr``, ``indices`` and ``shape`` of a binary CSR matrix.
"""

import json
import os
import sys
import time
import warnings

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_name] = "1"  # before numpy is loaded


def recogym(items, seconds):
    """Events a CPU second of RecoGym 0.1.3's own ``generate_logs``, of at least so many CPU seconds.

    The environment is reco-gym-v1 with K = 5, uniform recommendations and RecoGym's defaults otherwise (number_of_flips
    0). An event is a row of the log (a view, or a recommendation with its outcome) without the last row of each user:
    RecoGym adds there, after the user has left, an unseen recommendation.
    """
    from recogym_shim import make_env

    make_env({"num_products": 10, "random_seed": 1}).generate_logs(2)  # compiles and imports, untimed
    env = make_env({"num_products": int(items), "K": 5, "random_seed": 1})
    events, began = 0, time.process_time()
    while not events or time.process_time() - began < float(seconds):
        events += len(env.generate_logs(100)) - 100  # without the row after leaving: exactly one per user
    return {"rate": events / (time.process_time() - began)}


def sardine(items, steps, lanes):
    """Steps a CPU second of SARDINE's single-item environment with random actions, drawn before the clock starts.

    With 0 lanes one environment made by ``gymnasium.make`` without its checker, else Gymnasium's SyncVectorEnv.
    """
    warnings.filterwarnings("ignore")
    import gymnasium
    import numpy as np
    import sardine  # noqa: F401  (registers its environments)

    items, steps, lanes = int(items), int(steps), int(lanes)

    def make():
        name = "sardine/SingleItem-Static-v0"
        return gymnasium.make(name, disable_env_checker=True, num_items=items, env_embedds=None)

    env = gymnasium.vector.SyncVectorEnv([make] * lanes) if lanes else make()
    rounds = max(1, steps // lanes) if lanes else steps
    actions = np.random.default_rng(0).integers(0, items, (rounds, lanes, 1) if lanes else (rounds, 1))
    env.reset(seed=0)
    began = time.process_time()
    for action in actions:
        _, _, terminated, truncated, _ = env.step(action)
        if not lanes and (terminated or truncated):
            env.reset()
    return {"rate": rounds * max(lanes, 1) / (time.process_time() - began)}


def envpool(steps, *lanes):
    """Steps a CPU second of EnvPool's CartPole with random actions, one thread: by number of lanes."""
    warnings.filterwarnings("ignore")
    import envpool
    import numpy as np

    found = {}
    for n in map(int, lanes):
        env = envpool.make("CartPole-v1", env_type="gymnasium", num_envs=n, num_threads=1)
        env.reset()
        found[n] = stepped(env.step, steps, n, np.int32)
    return {"rates": found}


def gymnax(steps, *lanes):
    """The same of gymnax's on one thread of the CPU: one call of a compiled function per step, and all steps in one."""
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    import gymnax
    import jax
    import numpy as np

    env, params = gymnax.make("CartPole-v1")

    def move(held, actions):
        both = jax.vmap(jax.random.split)(held[0])
        seen, state, *rest = jax.vmap(env.step, in_axes=(0, 0, 0, None))(both[:, 0], held[1], actions, params)
        return (both[:, 1], state), (seen, *rest[:-1])

    once, rolled = jax.jit(move), jax.jit(lambda held, actions: jax.lax.scan(move, held, actions))
    rates, at_once = {}, {}
    for n in map(int, lanes):
        keys = jax.random.split(jax.random.PRNGKey(0), n)
        held = keys, jax.vmap(env.reset, in_axes=(0, None))(keys, params)[1]
        now = [held]

        def step(chosen, now=now):
            now[0], found = once(now[0], chosen)
            jax.block_until_ready(found)

        rates[n] = stepped(step, steps, n, np.int32)
        actions = np.random.default_rng(0).integers(0, 2, (max(20, int(steps) // n), n)).astype(np.int32)
        jax.block_until_ready(rolled(held, actions))
        at_once[n] = actions.size / timed(lambda a=actions, h=held: jax.block_until_ready(rolled(h, a)))
    return {"rates": rates, "rolled": at_once}


def stepped(step, steps, lanes, kind):
    """Steps a CPU second, of all lanes together."""
    import numpy as np

    actions = np.random.default_rng(0).integers(0, 2, (max(20, min(int(steps) // lanes, 4000)), lanes)).astype(kind)
    for chosen in actions[:20]:
        step(chosen)
    return actions.size / timed(lambda: [step(chosen) for chosen in actions])


def interactions(file):
    import numpy as np
    from scipy import sparse

    with np.load(file) as data:
        return sparse.csr_matrix((np.ones(len(data["indices"])), data["indices"], data["indptr"]), tuple(data["shape"]))


def implicit_top(file, out, neighbours):
    """CPU seconds of implicit's item neighbourhoods, and of the top ten of every user, which go to ``out``."""
    import numpy as np
    from implicit.nearest_neighbours import CosineRecommender

    matrix, model = interactions(file), CosineRecommender(K=int(neighbours), num_threads=1)
    began = time.process_time()
    model.fit(matrix, show_progress=False)
    fitted = time.process_time()
    lists, _ = model.recommend(np.arange(matrix.shape[0]), matrix, N=10, filter_already_liked_items=False)
    ended = time.process_time()
    np.save(out, lists)
    return {"fit": fitted - began, "top": ended - fitted}


def svd(file, out, method, rank):
    """CPU seconds of a truncated SVD by scikit-learn or scipy; ``out`` takes the right singular vectors."""
    import numpy as np
    from scipy.sparse.linalg import svds
    from sklearn.utils.extmath import randomized_svd

    matrix = interactions(file)
    began = time.process_time()
    if method == "randomized":
        _, _, vectors = randomized_svd(matrix, n_components=int(rank), random_state=0)
    else:
        _, _, vectors = svds(matrix, k=int(rank), random_state=0)
    seconds = time.process_time() - began
    np.save(out, vectors)
    return {"seconds": seconds}


def timed(work):
    began = time.process_time()
    work()
    return time.process_time() - began


_ALL = (recogym, sardine, implicit_top, svd, envpool, gymnax)
PEERS = {each.__name__: each for each in _ALL}

if __name__ == "__main__":
    print(json.dumps(PEERS[sys.argv[1]](*sys.argv[2:])))
