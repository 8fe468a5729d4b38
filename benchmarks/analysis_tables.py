"""Simulated tables of the kinds that people analyse first, with their public facts.

*orders* of a shop (codes within categories, states within regions, money that may be
negative), *stays* in hospital (twenty columns, a disease's group decides on its class),
*admissions* and *flights* (hours and weekdays), *codes* of diagnoses in chapters, and
*homes* with their places and prices.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dpgenerative import Column, Determines, Schema

TOWN_SIZE = (0.015, 0.02)
"""Standard deviations of the latitudes and longitudes of a town."""


@dataclass(frozen=True)
class Simulated:
    """A table of some rows, what a steward would state of it, and its laws.

    Attributes
    ----------
    frame : DataFrame
    schema : Schema
    laws : tuple of pair of column name
        The first decides on the second.
    towns : sequence of (float, float)
        Latitudes and longitudes around which all rows lie.
    """

    frame: pd.DataFrame
    schema: Schema
    laws: tuple[tuple[str, str], ...] = ()
    towns: Any = ()


def _names(stem: str, codes: np.ndarray) -> pd.Series:
    levels = [f"{stem} {i}" for i in range(int(codes.max()) + 1)]
    return pd.Series(pd.Categorical.from_codes(codes, levels))


def _zipf(rng: np.random.Generator, n_levels: int, n: int, power: float) -> np.ndarray:
    shares = (1.0 + np.arange(n_levels)) ** -power
    return rng.choice(n_levels, n, p=shares / shares.sum())


def orders(seed: int, n: int = 9_994) -> Simulated:
    """Return orders: 17 kinds in 3 categories, 48 states in 4 regions, money."""
    rng = np.random.default_rng(seed)
    kind, state = _zipf(rng, 17, n, 0.7), _zipf(rng, 48, n, 1.0)
    level = np.random.default_rng(0).normal(4, 1.0, 17)
    sales = np.exp(level[kind] + rng.normal(0, 1.0, n)).clip(0.5, 2e4).round(2)
    discount = rng.choice([0, 0.1, 0.2, 0.3, 0.7], n, p=[0.48, 0.02, 0.37, 0.03, 0.1])
    margin = 0.3 - 1.2 * discount + rng.normal(0, 0.1, n)
    ordered = pd.Timestamp("2020-01-01") + pd.to_timedelta(
        np.sort(rng.integers(0, 1461, n)), "D"
    )
    mode = rng.choice(4, n, p=[0.6, 0.2, 0.15, 0.05])
    shipped = ordered + pd.to_timedelta(
        np.array([5, 3, 2, 0])[mode] + rng.integers(0, 2, n), "D"
    )
    frame = pd.DataFrame(
        {
            "ordered": ordered, "shipped": shipped, "mode": _names("mode", mode),
            "segment": _names("segment", _zipf(rng, 3, n, 0.7)),
            "state": _names("state", state), "region": _names("region", state % 4),
            "kind": _names("kind", kind), "category": _names("category", kind % 3),
            "quantity": 1 + rng.poisson(2.8, n).clip(0, 13), "discount": discount,
            "sales": sales, "profit": (sales * margin).round(2),
        }
    )  # fmt: skip
    columns = [
        Column("ordered", "datetime", lower="2020-01-01", upper="2023-12-31"),
        Column("shipped", "datetime", lower="2020-01-01", upper="2024-01-31"),
        Column("quantity", "integer", lower=1, upper=20),
        Column("discount", "continuous", lower=0, upper=1, resolution=0.01),
        Column("sales", "continuous", lower=0, upper=50_000, resolution=0.01),
        Column("profit", "continuous", lower=-20_000, upper=20_000, resolution=0.01),
    ]
    laws = (("kind", "category"), ("state", "region"))
    return Simulated(frame, Schema(columns), laws)


def stays(seed: int, n: int = 9_105) -> Simulated:
    """Return stays: a disease's group decides on its class; twenty columns."""
    rng, fixed = np.random.default_rng(seed), np.random.default_rng(1)
    group, severity = _zipf(rng, 8, n, 0.6), rng.normal(0, 1, n)
    class_ = np.array([0, 0, 1, 1, 2, 2, 3, 3])[group]
    age = (62 + 3 * class_ + 15 * rng.normal(0, 1, n)).clip(18, 101).round(1)
    days = np.exp(2.2 + 0.4 * severity + rng.normal(0, 0.8, n)).clip(3, 343).round()
    cost = np.exp(
        8.5 + 0.8 * np.log(days / 9) + 0.3 * class_ + rng.normal(0, 0.7, n)
    ).clip(0, 1.4e6).round()  # fmt: skip
    died = rng.random(n) < 1 / (1 + np.exp(1.2 - severity - 0.02 * (age - 62)))
    data = {
        "group": _names("group", group), "class": _names("class", class_), "age": age,
        "sex": _names("sex", rng.integers(0, 2, n)),
        "race": _names("race", _zipf(rng, 5, n, 1.5)),
        "income": _names("income", _zipf(rng, 4, n, 0.5)),
        "days": days.astype(int), "cost": cost.astype(int),
        "paid": (cost * rng.beta(5, 4, n)).round().astype(int),
    }  # fmt: skip
    for j in range(10):
        value = fixed.normal(0, 0.5, 4)[class_] + fixed.normal(0, 0.6) * severity
        value = (50 + 15 * (value + rng.normal(0, 1, n))).clip(0, 150)
        data[f"measure {j}"] = value.round(1)
    data["died"] = _names("died", died.astype(int))
    columns = [
        Column("age", "continuous", lower=0, upper=110, resolution=0.1),
        Column("days", "integer", lower=0, upper=1_000),
        Column("cost", "integer", lower=0, upper=2_000_000),
        Column("paid", "integer", lower=0, upper=2_000_000),
        *(
            Column(f"measure {j}", "continuous", lower=0, upper=200, resolution=0.1)
            for j in range(10)
        ),
    ]
    return Simulated(pd.DataFrame(data), Schema(columns), (("group", "class"),))


def admissions(seed: int, n: int = 60_000) -> Simulated:
    """Return admissions on workdays between 7 and 19 h, but for 4 % on weekends."""
    rng = np.random.default_rng(seed)
    days = rng.integers(0, 1461, 2 * n)
    is_workday = (days + 2) % 7 < 5  # 2020 began on a Wednesday
    days = days[is_workday | (rng.random(2 * n) < 0.1)][:n]
    ward = rng.choice(["day", "night", "emergency"], n, p=[0.5, 0.2, 0.3])
    middle = pd.Series(ward).map({"day": 10.0, "night": 17.0, "emergency": 13.0})
    hours = rng.normal(middle, 1.5).clip(7, 18.99)
    admitted = pd.Timestamp("2020-01-01") + pd.to_timedelta(days, "D")
    admitted += pd.to_timedelta((hours * 60).astype(int), "min")
    frame = pd.DataFrame(
        {
            "age": rng.integers(0, 100, n), "admitted": admitted, "ward": ward,
            "cost": rng.lognormal(7, 1, n).round(),
        }
    )  # fmt: skip
    columns = [
        Column("age", "integer", lower=0, upper=110),
        Column(
            "admitted", "datetime", lower="2020-01-01", upper="2023-12-31T23:59",
            resolution="min",
        ),
        Column("cost", "integer", lower=0, upper=1_000_000),
    ]  # fmt: skip
    return Simulated(frame, Schema(columns))


def flights(seed: int, n: int = 60_000) -> Simulated:
    """Return flights: hours in two waves by carrier, delays that grow over the day."""
    rng = np.random.default_rng(seed)
    carrier, route = _zipf(rng, 14, n, 0.9), _zipf(rng, 60, n, 0.6)
    wave = rng.random(n) < 0.3 + 0.04 * carrier
    hours = np.where(wave, rng.normal(8, 1.5, n), rng.normal(17, 2.5, n))
    hours = hours.clip(5, 23.9)
    delay = (rng.gumbel(-5 + hours / 3, 12, n)).clip(-40, 1_200).round()
    distance = np.random.default_rng(0).lognormal(6.6, 0.7, 60).round()[route]
    departed = pd.Timestamp("2024-01-01") + pd.to_timedelta(
        rng.integers(0, 365, n) * 1440 + (hours * 60).astype(int), "min"
    )
    frame = pd.DataFrame(
        {
            "departed": departed, "carrier": _names("carrier", carrier),
            "origin": _names("origin", route % 3),
            "route": _names("route", route), "distance": distance.astype(int),
            "minutes": (30 + distance / 8 + rng.normal(0, 8, n)).clip(20).astype(int),
            "delay": delay.astype(int), "late": delay > 15,
        }
    )  # fmt: skip
    columns = [
        Column(
            "departed", "datetime", lower="2024-01-01", upper="2024-12-31T23:59",
            resolution="min",
        ),
        Column("distance", "integer", lower=0, upper=20_000),
        Column("minutes", "integer", lower=0, upper=1_440),
        Column("delay", "integer", lower=-120, upper=3_000),
    ]  # fmt: skip
    return Simulated(frame, Schema(columns), (("route", "origin"),))


def codes(seed: int, n: int = 20_000) -> Simulated:
    """Return diagnoses: 600 codes in 10 chapters, with ages from 39 to 76 by chapter.

    The schema states that a code determines its chapter.
    """
    rng = np.random.default_rng(seed)
    chapter = _zipf(rng, 10, n, 0.5)
    code = chapter + 10 * _zipf(rng, 60, n, 1.0)
    age = (np.linspace(39, 76, 10)[chapter] + rng.normal(0, 10, n)).clip(0, 105)
    frame = pd.DataFrame(
        {
            "age": age.round().astype(int), "sex": _names("sex", rng.integers(0, 2, n)),
            "code": _names("code", code), "chapter": _names("chapter", chapter),
            "days": rng.lognormal(1.5, 0.8, n).round().astype(int),
        }
    )  # fmt: skip
    mapping = {f"code {i}": f"chapter {i % 10}" for i in range(int(code.max()) + 1)}
    columns = [
        Column("age", "integer", lower=0, upper=110),
        Column("days", "integer", lower=0, upper=1_000),
    ]
    law = Determines(["code"], "chapter", mapping)
    return Simulated(frame, Schema(columns, constraints=[law]), (("code", "chapter"),))


def homes(seed: int, n: int = 21_600) -> Simulated:
    """Return homes in ten towns, some square: latitude, longitude, price."""
    rng, fixed = np.random.default_rng(seed), np.random.default_rng(2)
    town = _zipf(rng, 10, n, 0.6)
    centres = fixed.uniform([47.2, -122.5], [47.75, -121.6], (10, 2))
    place = centres[town] + rng.normal(0, 1, (n, 2)) * TOWN_SIZE
    area = rng.lognormal(7.5, 0.4, n).clip(300, 13_000).round()
    price = area * np.exp(fixed.normal(5.3, 0.4, 10)[town] + rng.normal(0, 0.25, n))
    frame = pd.DataFrame(
        {
            "lat": place[:, 0].round(4), "long": place[:, 1].round(4),
            "price": price.round(-2).astype(int), "area": area.astype(int),
            "rooms": (area / 600 + rng.normal(0, 0.7, n)).clip(1, 10).astype(int),
            "year": rng.integers(1900, 2016, n),
            "view": _names("view", _zipf(rng, 5, n, 2)),
        }
    )  # fmt: skip
    columns = [
        Column("lat", "continuous", lower=47, upper=48, resolution=1e-4),
        Column("long", "continuous", lower=-123, upper=-121, resolution=1e-4),
        Column("price", "integer", lower=0, upper=10_000_000),
        Column("area", "integer", lower=0, upper=20_000),
        Column("rooms", "integer", lower=0, upper=40),
        Column("year", "integer", lower=1900, upper=2020),
    ]
    schema = Schema(columns, joint=[("lat", "long")])
    return Simulated(frame, schema, towns=centres)


TABLES: dict[str, Callable[[int], Simulated]] = {
    "orders": orders, "stays": stays, "admissions": admissions, "flights": flights,
    "codes": codes, "homes": homes,
}  # fmt: skip
