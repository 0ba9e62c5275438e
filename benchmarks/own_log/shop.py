"""A shop's bandit log as its warehouse exports it, with a truth that is known: nothing here comes from the package.

    python shop.py FOLDER [--seed 0] [--rows 200000] [--variant plain]

writes ``shop.csv`` (semicolons, decimal commas, dates with the day first, text ids, missing values, repeated rows),
``new.csv`` (what the new policy would do: a row an impression, a column a product) and ``truth.json``.

A customer has a segment; an impression a device; a click on product a has the probability base[segment, device, a]
times a factor of the customer's, of mean 1. The old policy is a softmax of scores that know segment and device, mixed
with a tenth of the uniform policy; the new one is sharper. How often a customer comes depends on nothing, so the new
policy's value is the sum over segments, devices and products of share times probability times base.
"""

from __future__ import annotations

import argparse
import csv
import json
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np

SEGMENTS = ("private", "business", "student", "gift")
DEVICES = ("phone", "desktop", "tablet")
PRODUCTS = tuple(f"SKU-{n}" for n in ("004", "017", "101", "102", "230", "231", "777", "x9"))
SHARES = np.array([0.45, 0.2, 0.2, 0.15])
DEVICE_SHARES = np.array([0.6, 0.3, 0.1])
VARIANTS = ("plain", "no-propensities", "two-loggers", "wrong-logger", "other-user-name")


def softmax(scores, sharpness):
    raised = np.exp(sharpness * (scores - scores.max(axis=-1, keepdims=True)))
    return raised / raised.sum(axis=-1, keepdims=True)


def shop():
    """Base rates and the three policies, (segments, devices, products) each: the shop is the same for every seed."""
    draw = np.random.Generator(np.random.PCG64(20240531))
    base = 0.02 + 0.1 * draw.beta(1.2, 4.0, (len(SEGMENTS), len(DEVICES), len(PRODUCTS)))
    guess = base * draw.uniform(0.5, 1.5, base.shape)
    old = 0.9 * softmax(guess, 30.0) + 0.1 / len(PRODUCTS)
    other = 0.7 * softmax(-guess, 20.0) + 0.3 / len(PRODUCTS)
    return base, old, other, softmax(base, 60.0)


def comma(value, digits):
    return f"{value:.{digits}f}".replace(".", ",")


def impressions(draw, rows):
    """Customer, segment, device of each impression, in the order in which they come; and the customers' factors."""
    number = rows // 10
    visits = draw.geometric(0.1, number)
    customer = np.repeat(np.arange(number), visits)
    while len(customer) < rows:
        number += 1
        customer = np.append(customer, np.full(draw.geometric(0.1), number - 1))
    customer = draw.permutation(customer[:rows])
    segment = draw.choice(len(SEGMENTS), number, p=SHARES)
    device = draw.choice(len(DEVICES), rows, p=DEVICE_SHARES)
    return customer, segment[customer], device, draw.uniform(0.2, 1.8, number)[customer]


def write(folder, seed=0, rows=200_000, variant="plain"):
    """Make the files; returns the new policy's value."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    base, old, other, new = shop()
    draw = np.random.Generator(np.random.PCG64([seed, 7]))
    customer, segment, device, factor = impressions(draw, rows)
    logger = (
        (draw.random(rows) < 0.4).astype(int) if variant in ("two-loggers", "wrong-logger") else np.zeros(rows, int)
    )
    laws = np.where(logger[:, None] == 0, old[segment, device], other[segment, device])
    action = (draw.random(rows)[:, None] > laws.cumsum(axis=1)[:, :-1]).sum(axis=1)
    clicks = draw.random(rows) < base[segment, device, action] * factor
    stated = old[segment, device] if variant == "wrong-logger" else laws
    propensity = stated[np.arange(rows), action]
    seconds = np.sort(draw.integers(0, 28 * 86_400, rows))
    names = draw.permutation(np.arange(100_000, 100_000 + 3 * rows))
    missing = draw.random((3, rows)) < np.array([[0.004], [0.003], [0.001]])
    columns = {
        "impression": [f"i{number}" for number in names[:rows]],
        "served_at": [
            (datetime(2024, 5, 1) + timedelta(seconds=int(s))).strftime("%d.%m.%Y %H:%M:%S") for s in seconds
        ],
        "customer_id": [("" if gone else f"K-{c:06d}") for c, gone in zip(customer, missing[2], strict=True)],
        "segment": [SEGMENTS[s] for s in segment],
        "device": [DEVICES[d] for d in device],
        "product_id": [PRODUCTS[a] for a in action],
        "pscore": [("" if gone else comma(p, 6)) for p, gone in zip(propensity, missing[1], strict=True)],
        "clicks": [("" if gone else str(int(c))) for c, gone in zip(clicks, missing[0], strict=True)],
    }
    if variant == "no-propensities":
        del columns["pscore"]
    if variant in ("two-loggers", "wrong-logger"):
        columns["logging_policy"] = [("v1", "v2")[which] for which in logger]
    if variant == "other-user-name":
        columns["haushalt"] = columns.pop("customer_id")
    again = np.sort(draw.choice(rows, rows // 100, replace=False))
    order = np.sort(np.concatenate([np.arange(rows), again]))
    with (folder / "shop.csv").open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file, delimiter=";")
        out.writerow(columns)
        table = list(zip(*columns.values(), strict=True))
        out.writerows(table[row] for row in order)
    with (folder / "new.csv").open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file, delimiter=";")
        out.writerow(["impression", *PRODUCTS])
        rounded = np.vectorize(lambda p: comma(p, 7), otypes=[object])(new)
        for row in draw.permutation(rows):
            out.writerow([columns["impression"][row], *rounded[segment[row], device[row]]])
    value = float(np.einsum("s,d,sda,sda->", SHARES, DEVICE_SHARES, new, base))
    facts = {
        "value": value, "rows": len(order), "repeated": len(again), "variant": variant, "seed": seed,
        "incomplete": int(missing[[0, 2] if variant == "no-propensities" else [0, 1, 2]].any(axis=0).sum()),
    }  # fmt: skip
    (folder / "truth.json").write_text(json.dumps(facts) + "\n")
    return value


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--variant", choices=VARIANTS, default="plain")
    given = parser.parse_args()
    value = write(given.folder, given.seed, given.rows, given.variant)
    print(f"{given.folder}: shop.csv, new.csv, truth.json; the new policy's value is {value:.6f}")


if __name__ == "__main__":
    main()
