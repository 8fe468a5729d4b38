"""
Quick start: a private copy of a sensitive survey
=================================================

Fair's survey of extramarital affairs (6,366 women, bundled with statsmodels) is split
into private rows and a held-out fifth. A synthesizer learns the private rows at epsilon
1, and its privacy report says what that released. Then the synthetic table is compared
with the private one, and with what chance and independence would give. At the end, rows
are drawn that satisfy conditions, and results get intervals.

The script writes three files into the folder ``quickstart-output``: ``synthetic.csv``,
which is what may be released, and ``marginals.png`` and ``report.html``, which describe
the private rows too and are **not** for release, any more than the tables printed.
"""

# %%
# Say what is public
# ------------------
# The loader carries the published code book as a ``Schema``: which
# codes a column may hold, whether they have an order, and the bounds of the one column
# that is a number. None of this was read off the rows.
#
# For a table of your own, write the schema from what a stranger to the rows could know.
# ``schema.check(df)`` counts the cells that it would change, for the owner's eyes only.
# Columns that a schema leaves out, or a fit without one, are read by dtype:
# ``category`` has public levels, strings and numbers have levels and bounds that are
# found privately.
from pathlib import Path

from dpgenerative.datasets import load_fair

fair = load_fair()
print(fair.schema)

# %%
# Look ahead
# ----------
# Which noise would a fit add at this epsilon? The number of rows is a public guess
# here, and no row is read.
from dpgenerative import forecast

print(forecast(fair.schema, n_rows=5000, epsilon=1.0, delta=1e-5))

# %%
# Fit and sample
# --------------
# Hold rows out *before* the fit, so that no classifier is tested on rows that the
# synthesizer has seen. Each ``fit`` on the same rows spends the whole budget once more;
# sampling spends nothing, however many rows are drawn.
from sklearn.model_selection import train_test_split

from dpgenerative import DPHFlowSynthesizer

private, held_out = train_test_split(fair.data, test_size=0.2, random_state=0)
synth = DPHFlowSynthesizer(epsilon=1.0, delta=1e-5, schema=fair.schema)
synth.fit(private)
synthetic = synth.sample(len(fair.data))
print(synthetic.head().T.to_string())

# %%
# What that released, with which noise, and which facts are assumed public:
print(synth.privacy_)

# %%
# Look at the marginals
# ---------------------
# Distances between tables are means over all columns or pairs of columns. Two others
# say what they are worth: that of the private rows and a bootstrap sample of them,
# which no synthetic table of this size can fall below by much, and that of columns
# which are permuted one by one, which have no dependence left.
import pandas as pd

from dpgenerative.metrics import marginal_distance

found = {f"{k}-way": marginal_distance(private, synthetic, k) for k in (1, 2)}
rows = {
    "synthetic rows": {name: each.mean for name, each in found.items()},
    "private rows, resampled": {name: each.floor for name, each in found.items()},
    "private columns, permuted": {name: each.baseline for name, each in found.items()},
}
print(pd.DataFrame(rows).T.round(3).to_string())

# %%
# The same column by column: private rows in grey, synthetic ones outlined.
from dpgenerative.metrics.plots import plot_marginals

figure = plot_marginals(private, synthetic)

# %%
# Train on synthetic rows, test on real ones
# ------------------------------------------
# ``metrics.report`` compares the tables in every way it knows,
# attacks the synthesizer, and puts all of it on one page with a verdict in plain words.
# Here classifiers are asked who has had an affair at all; they learn from private or
# from synthetic rows, and answer for people held out.
from dpgenerative.metrics import report


def any_affair(frame: pd.DataFrame) -> pd.DataFrame:
    """Replace the hours spent by the question that classifiers are to answer."""
    return frame.assign(any_affair=frame["affairs"] > 0).drop(columns="affairs")


page = report(
    any_affair(private),
    any_affair(synthetic),
    holdout=any_affair(held_out),
    target="any_affair",
    synthesizer=synth,
)
scores = page.utility.drop(columns=["model", "repeat"])
print("Predicting an affair of held-out people (mean of nine classifiers):")
print(scores.groupby("trained_on", sort=False).mean().round(3).to_string())

# %%
# Rows that satisfy conditions
# ----------------------------
# The fitted model draws them at no further cost: here, devout women of the two oldest
# groups. ``conditional.py`` has more, such as completions of partial rows.
devout = synth.sample(1000, given={"religious": 4.0, "age": [37.0, 42.0]})
share = (devout["affairs"] > 0).mean()
print(f"Of {len(devout)} devout women of the oldest groups, {share:.0%} had an affair.")

# %%
# How far a result can be trusted
# -------------------------------
# The share with an affair, by rating of the marriage (1 is very poor, 5 very good). The
# usual intervals of synthetic rows are too short. These come from refits to tables that
# the synthesizer draws: they read no private row and spend nothing. Eight refits give a
# first impression; take 50 for a result to publish. ``intervals.py`` has more.
from dpgenerative.inference import bootstrap


def share_by_rating(rows: pd.DataFrame) -> pd.Series:
    """Return the share with an affair by rating of the marriage."""
    return (rows["affairs"] > 0).groupby(rows["rate_marriage"], observed=True).mean()


intervals = bootstrap(synth, share_by_rating, n_refits=8, n_jobs=2)
print(intervals)

# %%
# Keep what is for release apart
# ------------------------------
# Figures and scores describe real rows without noise: they inform the owner of the
# data.
out = Path("quickstart-output")
out.mkdir(exist_ok=True)
synthetic.to_csv(out / "synthetic.csv", index=False)
figure.savefig(out / "marginals.png")
page.save(out / "report.html")
print(f"For release:     {out / 'synthetic.csv'}")
print(f"Not for release: {out / 'marginals.png'}, {out / 'report.html'}")
