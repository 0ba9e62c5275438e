from __future__ import annotations

import numpy as np

from recsim_mnar.agents.acting import Histories
from recsim_mnar.policies.slots import Slots
from toys import refused


def test_slots_against_a_dictionary():
    generator = np.random.default_rng(8)
    slots, twin = Slots(), {}
    ids = np.concatenate([np.arange(60), generator.integers(-(2**63), 2**63 - 1, 60)])
    for _ in range(400):
        some = generator.choice(ids, generator.integers(1, 40), replace=False)
        if generator.random() < 0.55:
            twin.update(zip(some.tolist(), slots.enter(some).tolist(), strict=True))
        else:
            left = slots.leave(some)
            assert left.tolist() == [twin.pop(u) for u in some.tolist() if u in twin]
        assert len(slots) == len(twin)
        assert len(set(twin.values())) == len(twin)
        if twin:
            users = np.array(list(twin))
            assert slots.find(users).tolist() == [twin[u] for u in users.tolist()]
    assert slots.size <= 256


def test_slots_stay_bounded_by_the_live_users():
    slots = Slots()
    for begin in range(0, 20_000, 50):
        slots.enter(np.arange(begin, begin + 50))
        slots.leave(np.arange(begin, begin + 50))
    assert slots.size == 64


def test_a_user_who_has_not_begun():
    slots = Slots()
    slots.enter(np.array([3]))
    with refused(r"user 4 has not begun: call reset"):
        slots.find(np.array([3, 4]))


def test_histories_against_lists():
    generator = np.random.default_rng(4)
    histories, twin = Histories(), [[] for _ in range(20)]
    histories.resize(20)
    for _ in range(300):
        slots = generator.integers(0, 20, generator.integers(1, 200))
        slots = np.where(generator.random(len(slots)) < 0.3, 3, slots)
        items = generator.integers(0, 1000, len(slots)).astype(np.int32)
        histories.append(slots, items)
        for slot, item in zip(slots, items, strict=True):
            twin[slot].append(item)
        for slot in np.flatnonzero(generator.random(20) < 0.1):
            histories.clear(np.array([slot]))
            twin[slot] = []
        owner, views = histories.flat(np.arange(20))
        for slot in range(20):
            assert views[owner == slot].tolist() == twin[slot]
    live = sum(len(views) for views in twin)
    assert len(histories.pool) < 60 * max(live, 1000)
