"""
Conditions, partial rows and impossible rows
============================================

A survey of 6,366 women about their marriages (Fair 1978, bundled with statsmodels) is
learned once, under differential privacy. Then, at no further cost, samples are asked
for that satisfy conditions, and rows of which only some columns are known are
completed. A combination that the code book rules out never comes up, and every row is
numbered.
"""

# %%
# What is public
# --------------
# The code book, and two facts more: rows have a number, which is not read but made
# anew, and nobody under twenty (the code 17.5) has been married for more than seven
# years (the codes from 9 on).
import numpy as np

from dpgenerative import Column, DPHFlowSynthesizer, Impossible, Schema
from dpgenerative.datasets import load_fair

fair = load_fair()
number = Column("respondent", "integer", role="id")
too_young = Impossible({"age": 17.5, "yrs_married": [9.0, 13.0, 16.5, 23.0]})
schema = Schema([number, *fair.schema.columns], [too_young])

frame = fair.data
frame.insert(0, "respondent", np.arange(len(frame)) + 1_000_000)
synth = DPHFlowSynthesizer(epsilon=1.0, delta=1e-5, schema=schema).fit(frame)
print(synth.privacy_)

# %%
# A plain sample has no row that cannot be.
plain = synth.sample(200_000)
impossible = plain.query("age == 17.5 and yrs_married >= 9")
print(f"Rows that cannot be, of {len(plain)}: {len(impossible)}")
print(f"Respondents are numbered from {plain['respondent'].min()} on.")

# %%
# Samples that satisfy conditions
# -------------------------------
# Each sample is compared with the rows of the plain one that happen to satisfy the same
# conditions, by the mean total variation distance of their one-way marginals of codes.
# Where these rows are few, most of the distance is theirs.
import time

import pandas as pd

from dpgenerative.tables.conditions import satisfies


def distance(one: pd.DataFrame, other: pd.DataFrame) -> float:
    """Return the mean total variation distance of one-way marginals of codes."""
    found = []
    for name in one.columns.drop(["respondent", "affairs"]):
        shares, others = (
            each[name].value_counts(normalize=True) for each in (one, other)
        )
        found.append(shares.sub(others, fill_value=0).abs().sum() / 2)
    return float(np.mean(found))


CONDITIONS = {
    "first in the flow's order": {"affairs": (0.01, None)},
    "elsewhere": {"religious": 4.0, "age": [37.0, 42.0]},
    "rare": {"religious": 4.0, "age": 42.0, "educ": 20.0},
}
for name, given in CONDITIONS.items():
    start = time.perf_counter()
    rows = synth.sample(2_000, given=given)
    seconds = time.perf_counter() - start
    assert all(satisfies(rows[column], each).all() for column, each in given.items())
    met = [satisfies(plain[column], each) for column, each in given.items()]
    reference = plain[np.logical_and.reduce(met)]
    print(
        f"{name}: {given}\n  {len(reference)} of {len(plain)} plain rows satisfy it; "
        f"2,000 rows in {seconds:.2f} s, at a distance of "
        f"{distance(rows, reference):.3f} from these"
    )
    if name == "elsewhere":
        years = {"all rows": plain, "found": reference, "asked for": rows}

# %%
# Years of marriage of devout women of 37 or 42 years: found among plain rows, and asked
# for.
import matplotlib.pyplot as plt

shares = pd.DataFrame(
    {
        name: table["yrs_married"].value_counts(normalize=True)
        for name, table in years.items()
    }
)
shares.plot.bar(figsize=(6, 3), xlabel="years married", ylabel="share of rows", rot=0)
plt.tight_layout()
plt.show()

# %%
# Partial rows completed
# ----------------------
# Of three women only some answers are known. Each is completed three times: what is
# missing is drawn given what is known. The completion of a private row is as private as
# that row.
known = pd.DataFrame(
    {
        "age": [22.0, 32.0, 42.0],
        "yrs_married": [2.5, 9.0, 23.0],
        "religious": [4.0, 1.0, np.nan],
    },
    index=["a young believer", "an unbeliever", "an older woman"],
)
part = known.loc[known.index.repeat(3)]
whole = synth.sample(given=part, impute=True)
print(whole.drop(columns=["respondent", "occupation_husb"]).to_string())
