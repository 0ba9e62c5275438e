"""Lets RecoGym 0.1.3 be imported without PyTorch: its simulator needs none, but its agents import it at load time.

PyTorch's wheels bring gigabytes of GPU libraries. Nothing of RecoGym is edited: the names of ``torch`` that its agents
use as base classes or default arguments become empty classes, so that an agent that needs PyTorch cannot be used.

Import this module before numpy: it asks for one thread, and numpy's libraries read that when they are loaded.
"""

import contextlib
import importlib.util
import io
import os
import sys
import types

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_name] = "1"  # events a CPU second must not count threads that wait for each other
os.environ["TQDM_DISABLE"] = "1"  # no progress bars


class _Absent(types.ModuleType):
    """A module whose every public attribute is an empty class."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        value = type(name, (), {})
        setattr(self, name, value)
        return value


def _stand_in_for_torch():
    names = ("torch", "torch.nn", "torch.nn.functional", "torch.optim", "torch.sparse")
    for name in names:
        module = _Absent(name)
        module.__path__ = []
        sys.modules[name] = module
    for name in names[1:]:
        parent, _, child = name.rpartition(".")
        setattr(sys.modules[parent], child, sys.modules[name])


def load_recogym():
    """Import RecoGym, with a stand-in for PyTorch where that is not installed; returns the package."""
    if "torch" not in sys.modules and importlib.util.find_spec("torch") is None:
        _stand_in_for_torch()
    with contextlib.redirect_stderr(io.StringIO()):  # gym announces its end of life whenever it is imported
        import recogym

    return recogym


def make_env(arguments):
    """RecoGym's v1 environment, made by ``gym.make`` and initialised with ``arguments`` (names of ``env_1_args``)."""
    recogym = load_recogym()
    import gym

    # gym's checker rejects RecoGym's reset(), which returns None; its other wrappers would only slow RecoGym down.
    env = gym.make("reco-gym-v1", disable_env_checker=True).unwrapped
    env.init_gym({**recogym.env_1_args, **arguments})
    return env
