"""
Quick start: a private copy of a sensitive survey
=================================================

Fair's survey of extramarital affairs (6,366 women, bundled with statsmodels) is split
into private rows and a held-out fifth. A synthesizer learns the private rows at epsilon
1, and its privacy report says what that released. Then the synthetic table is compared
with the private one, and with what chance and independence would give.

The script writes three files into the folder ``quickstart-output``: ``synthetic.csv``,
which is what may be released, and ``marginals.png`` and ``report.html``, which describe
the private rows too and are **not** for release, any more than the tables printed.
"""

# %%
# Say what is public
# ------------------
# The loader carries the published code book as a :class:`~dpgenerative.Schema`: which
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
# :func:`~dpgenerative.metrics.report` compares the tables in every way it knows,
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
