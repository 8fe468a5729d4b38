"""
Patients and their visits
=========================

Two files of a (simulated) clinic: patients, and their visits in order. A patient is to
be protected with all of their visits, and synthetic patients are to have visits that
hang together. Two files go in, two files come out.
"""

# %%
# Two files
# ---------
# 6,000 patients with up to five visits each. Blood pressure differs between patients,
# falls from visit to visit, and wards follow each other.
import json
from pathlib import Path
from tempfile import mkdtemp

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from dpgenerative import Column, Schema
from dpgenerative.cli import main

rng = np.random.default_rng(0)
n, most = 6_000, 5
level = rng.normal(150, 15, n)
patients = pd.DataFrame(
    {
        "patient": np.arange(n),
        "sex": rng.choice(["f", "m"], n),
        "born": rng.integers(1930, 2005, n),
    }
)
parts, day, ward = [], rng.integers(0, 700, n), rng.integers(0, 3, n)
for place in range(most):
    pressure = level - 6 * place + rng.normal(0, 6, n)
    visit = {"patient": np.arange(n), "pressure": pressure.round()}
    visit["day"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(day, "D")
    visit["ward"] = np.array(["emergency", "medical", "surgical"])[ward]
    parts.append(pd.DataFrame(visit).sample(n // (place + 1), random_state=place))
    parts[-1] = parts[-1][
        parts[-1]["patient"].isin(parts[max(place - 1, 0)]["patient"])
    ]
    day = day + rng.integers(7, 90, n)
    ward = np.where(rng.random(n) < 0.8, ward, rng.integers(0, 3, n))
visits = pd.concat(parts).sort_values(["patient", "day"])
folder = Path(mkdtemp())
patients.to_csv(folder / "patients.csv", index=False)
visits.to_csv(folder / "visits.csv", index=False)

# %%
# What is public
# --------------
# The key, and what orders a patient's rows. A patient has one value of what stands in
# the file of patients.
schema = Schema(
    [
        Column("patient", "integer", role="unit"),
        Column(
            "day", "datetime", role="order", lower="2020-01-01", upper="2024-12-31",
            resolution="D",
        ),
        Column("sex", "categorical", levels=("f", "m")),
        Column("born", "integer", lower=1920, upper=2010),
        Column("pressure", "continuous", lower=60, upper=260, resolution=1),
        Column("ward", "categorical", levels=("emergency", "medical", "surgical")),
    ]
)  # fmt: skip

# %%
# Two files in, two files out
# ---------------------------
# By the command line, which ``main`` runs here as a terminal would.
(folder / "schema.json").write_text(json.dumps(schema.to_dict()))
main(
    f"""fit {folder}/visits.csv --people {folder}/patients.csv --epsilon 1
    --schema {folder}/schema.json --set max_rows_per_unit={most}
    -o {folder}/model.dpg --quiet""".split()
)
main(
    f"""sample {folder}/model.dpg -n {n} --random-state 0
    --people {folder}/fake_patients.csv -o {folder}/fake_visits.csv""".split()
)


# %%
# Patients and visits have the key in common, as the real ones do.
def read(name):
    """Return visits, with what is constant of their patients."""
    visits = pd.read_csv(folder / f"{name}visits.csv", parse_dates=["day"])
    return visits.merge(pd.read_csv(folder / f"{name}patients.csv"), on="patient")


real, fake = read(""), read("fake_")
print(fake.head(8).to_string(index=False))

# %%
# What it may be used for
# -----------------------
# Questions within people: how a value goes on, how many visits there are, where
# patients go next. What happened long before the last visit is hardly there.


def within(rows):
    """Return what is computed of people with several rows."""
    rows = rows.sort_values(["patient", "day"])
    by = rows.groupby("patient")
    before = by["pressure"].shift()
    stays = (by["ward"].shift() == rows["ward"])[before.notna()]
    change = by["pressure"].diff()
    return pd.Series(
        {
            "visits per patient": by.size().mean(),
            "correlation with the visit before": rows["pressure"].corr(before),
            "mean change of pressure": change.mean(),
            "stays in the ward": stays.mean(),
            "days between visits": by["day"].diff().dt.days.mean(),
        }
    )


print(pd.DataFrame({"real": within(real), "synthetic": within(fake)}).round(2))

# %%
# Pressure beside that of the visit before.
figure, axes = plt.subplots(1, 2, figsize=(7, 3.2), sharex=True, sharey=True)
for ax, (title, rows) in zip(
    axes, {"real": real, "synthetic": fake}.items(), strict=True
):
    before = rows.sort_values(["patient", "day"]).groupby("patient")["pressure"].shift()
    ax.plot(before, rows["pressure"], ".", ms=1, alpha=0.3)
    ax.set(title=title, xlabel="pressure, visit before")
axes[0].set_ylabel("pressure")
figure.tight_layout()
