"""
How far can a number be trusted?
================================

A survey of 6,366 women about their marriages (Fair 1978, bundled with statsmodels) is
learned once, under differential privacy. Shares by group are computed from synthetic
rows. How far are they off? The synthesizer is fitted again to tables that it drew
itself, which shows sampling, noise and bias together. No private row is read, and
nothing is spent.
"""

# %%
# A private fit
# -------------
# The code book is public.
import numpy as np
import pandas as pd

from dpgenerative import DPHFlowSynthesizer
from dpgenerative.datasets import load_fair
from dpgenerative.inference import bootstrap, combine, sample_copies

fair = load_fair()
synth = DPHFlowSynthesizer(epsilon=1.0, delta=1e-5, schema=fair.schema).fit(fair.data)

# %%
# An analysis
# -----------
# The share of women with affairs by how they rate their marriage, from very poor (1)
# to very good (5). The function also returns the usual standard errors, which hold for
# rows of people.


def by_rating(rows):
    """Return the share with affairs by rating, and its usual standard error."""
    groups = (rows["affairs"] > 0).groupby(rows["rate_marriage"], observed=True)
    return groups.mean(), groups.std() / np.sqrt(groups.size())


# %%
# Intervals
# ---------
# Twenty refits: each is a fit of its own.
found = bootstrap(synth, by_rating, n_refits=20, n_jobs=2)
print(found)

# %%
# What the errors consist of.
print(found.parts().round(4))

# %%
# Beside the real rows
# --------------------
# Whoever has the real rows can look: the usual intervals of synthetic rows are too
# short. (This survey is public.)
rows = synth.sample(len(fair.data))
real, naive = by_rating(fair.data), by_rating(rows)
bounds = found.interval()
table = pd.DataFrame(
    {
        "real": real[0],
        "synthetic": naive[0],
        "usual +-": 1.96 * naive[1],
        "refits, lower": bounds["lower"],
        "refits, upper": bounds["upper"],
    }
)
print(table.round(3).to_string())

# %%
# A picture of it: real rows in black, refits in blue, the usual intervals in grey.
figure = found.plot()
axes = figure.axes[0]
places = np.arange(len(real[0]))
for (values, errors), color, shift in ((real, "black", -0.2), (naive, "grey", 0.2)):
    axes.errorbar(
        values, places + shift, xerr=1.96 * errors, fmt="o", ms=3, color=color
    )
axes.set_ylabel("rating of the marriage")
figure.set_size_inches(7, 3)
figure.tight_layout()
figure

# %%
# For those who get only files
# ----------------------------
# A synthetic table and ten copies of it, from refits, let anyone compute the same.
tables = sample_copies(synth, 10, 6_000, n_jobs=2)
shares = [by_rating(rows)[0] for rows in tables]
print(combine(shares).round(3).to_string())
