#!/usr/bin/env bash
# Makes the virtual environments of the simulators that ours is compared with, from PyPI packages only.
#
#   bash benchmarks/speed/make_peers.sh
#
# PEERS_DIR  where to put them (default: .venvs beside this script)
# PYTHON     the Python to make them with (default: python3.11)
#
# Running it again changes nothing when all is in place.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
peers=${PEERS_DIR:-$here/.venvs}
python=${PYTHON:-python3.11}

# RecoGym declares unbounded PyTorch, TensorFlow and Jupyter, which its simulator does not need and its agents need only in
# part: so it is installed without its declared dependencies, and what it does import is listed here.
recogym_itself="recogym==0.1.3.0" # the last release (2019), the one that is compared
recogym_needs=(
    "gym==0.26.2"     # the last gym; of it RecoGym uses only Env, Discrete, register and make
    "scipy==1.11.4"   # the last series with scipy.rand, which RecoGym's agents import
    "numpy==1.26.4"   # the last numpy that this scipy accepts; the simulator needs nothing that numpy has removed
    "pandas==3.0.6"   # 1.5.3 works as well; pinned because its speed is part of what is measured
    "numba==0.68.1"   # 0.57.1 works as well; pinned for the same reason
    "scikit-learn"    # imported with the agents, not called: no pin needed
    "matplotlib"      # imported with the plots, not called: no pin needed
    "tqdm>=4.66"      # the first that TQDM_DISABLE silences
)

make_recogym() {
    local venv=$peers/recogym wanted
    wanted=$(printf '%s\n' "$recogym_itself" "${recogym_needs[@]}")
    if [[ -x $venv/bin/python && -f $venv/wanted.txt && $(<"$venv/wanted.txt") == "$wanted" ]]; then
        echo "recogym: in place in $venv"
        return
    fi
    if [[ -e $venv && ! -f $venv/pyvenv.cfg ]]; then
        echo "recogym: $venv exists and is no virtual environment" >&2
        return 1
    fi
    "$python" -m venv --clear "$venv"
    "$venv/bin/python" -m pip install --quiet "${recogym_needs[@]}"
    "$venv/bin/python" -m pip install --quiet --no-deps "$recogym_itself"
    printf '%s\n' "$wanted" >"$venv/wanted.txt" # written last: an interrupted run starts anew
    echo "recogym: made in $venv"
}

mkdir -p "$peers"
make_recogym
