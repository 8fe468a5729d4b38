"""
How much privacy do I buy with epsilon?
=======================================

A data scientist has a labelled table and wonders which epsilon to choose. This study
fits the same synthesizer without privacy and at several budgets, and asks two questions
of each: how accurate is a classifier that learned from synthetic rows, on real rows
that it has never seen? And how well can an adversary who holds the model tell the rows
that it was trained on from others?

The picture says what each budget costs in accuracy and what it prevents. That this
attack fails at a budget does not mean that all would: what holds against every attack
is the guarantee, which is the stronger the smaller epsilon is.
"""

# %%
# The table
# ---------
# 569 tumours, four measurements and a diagnosis. Put your own table here, with a label
# for each row.
from sklearn.datasets import load_breast_cancer

X, y = load_breast_cancer(return_X_y=True, as_frame=True)
X = X[["mean radius", "mean texture", "mean smoothness", "mean concavity"]]
y = y.map({0: "malignant", 1: "benign"}).rename("diagnosis")

# %%
# The study
# ---------
# Rows are split in three at every seed: those that are trained on, as many others for
# the attack to tell them from, and test rows. Nothing of a study is private: it trains
# without privacy too. Use it on public data, or on rows that you may look at, and keep
# its figures.
import warnings

from sklearn.linear_model import LogisticRegression

from dpgenerative import DPHFlowSynthesizer
from dpgenerative.study import privacy_utility_tradeoff

# The smallest budgets are too small for so few rows, and their fits say so.
warnings.simplefilter("ignore")
results = privacy_utility_tradeoff(
    DPHFlowSynthesizer(n_steps=150),
    X,
    y,
    epsilons=[0.3, 1.0, 10.0, 100.0],
    classifier=LogisticRegression(),
    seeds=range(3),
)
shown = ["accuracy", "average_precision", "auc", "phi"]
by_budget = results.groupby(["mechanism", "value"], sort=False, dropna=False)[shown]
print(by_budget.median().round(3).to_string())

# %%
# One picture
# -----------
# Points are medians of three splits, whiskers the least and the greatest. Above the
# dotted line of phi a budget takes more from the adversary than from you.
from dpgenerative.study import plot_tradeoff

figure = plot_tradeoff(results, title="Breast cancer: 227 training rows, 3 splits")
figure.savefig("privacy_budget.png")
print("\nThe picture is in privacy_budget.png.")
