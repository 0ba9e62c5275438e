# mypy: ignore-errors
"""Which of equal values numpy took in 2019: its selection without vector instructions, whatever the processor has.

Where values tie, ``argpartition`` leaves other positions in front with AVX than without; the notebook's figures hang on
that.
"""

from __future__ import annotations

from recsim_mnar.kernels.jit import kernel


@kernel
def select(v, place, k):
    """Move the ``k`` smallest of ``v`` to the front, and ``place`` with them, by the median of three in numpy's swaps.

    False where numpy would go over to medians of medians, after 2 log2(n) steps.
    """
    n, kth = v.size, k - 1
    low, high = 0, n - 1
    if kth < 3 or kth == n - 1:  # one by one from the smallest; all of them need no selection
        for i in range(k if k < n else 0):
            best = i
            for j in range(i + 1, n):
                if v[j] < v[best]:
                    best = j
            v[i], v[best] = v[best], v[i]
            place[i], place[best] = place[best], place[i]
        return True
    steps = 0
    while (n >> (steps + 1)) > 0:
        steps += 1
    steps *= 2
    while low + 1 < high:
        if steps <= 0 and high - low - 1 >= 5:
            return False
        steps -= 1
        mid = low + (high - low) // 2
        for a, b in ((high, mid), (high, low), (low, mid)):  # the median to low, the least to mid
            if v[a] < v[b]:
                v[a], v[b] = v[b], v[a]
                place[a], place[b] = place[b], place[a]
        v[mid], v[low + 1] = v[low + 1], v[mid]
        place[mid], place[low + 1] = place[low + 1], place[mid]
        up, down, pivot = low + 1, high, v[low]
        while True:
            up += 1
            while v[up] < pivot:
                up += 1
            down -= 1
            while pivot < v[down]:
                down -= 1
            if down < up:
                break
            v[up], v[down] = v[down], v[up]
            place[up], place[down] = place[down], place[up]
        v[low], v[down] = v[down], v[low]
        place[low], place[down] = place[down], place[low]
        if down >= kth:
            high = down - 1
        if down <= kth:
            low = up
    if high == low + 1 and v[high] < v[low]:
        v[high], v[low] = v[low], v[high]
        place[high], place[low] = place[low], place[high]
    return True
