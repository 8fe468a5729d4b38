"""
Choose a budget and train a classifier: searches, and what they cost
====================================================================

A classifier that sees synthetic rows only is tried at several budgets by scikit-learn's
``GridSearchCV``. Each candidate is fitted once per fold, so that the search spends many
budgets, and its scores, computed on private rows without noise, are covered by none. It
also prefers a large epsilon, which gives better scores. Such a search is useful
for the curve of utility over privacy, drawn on public rows or on a public table of the
same kind, as in this example. Other parameters are then chosen by a private search,
whose total, scores included, is the epsilon that was asked for. What it chose is
compared with the same classifier on real rows, and attacked.
"""

# %%
# A predictor that learns from synthetic rows
# -------------------------------------------
from sklearn.model_selection import train_test_split

from dpgenerative import DPHFlowSynthesizer, Schema, SyntheticClassifier
from dpgenerative.datasets import load_fair

fair = load_fair()
X = fair.data.drop(columns=fair.target)
y = (fair.data[fair.target] > 0).rename("any_affair")
schema = Schema(column for column in fair.schema.columns if column.name != fair.target)
X, rest, y, y_rest = train_test_split(X, y, train_size=3000, random_state=0)

flow = DPHFlowSynthesizer(schema=schema, n_steps=150)
model = SyntheticClassifier(flow, random_state=0)

# %%
# Utility over privacy
# --------------------
# The fold of every row is drawn independently. Then one row more changes the fold of no
# other, and what the search spends on a row is the sum over the fits that see it.
import numpy as np
import pandas as pd
from sklearn.model_selection import GridSearchCV, PredefinedSplit

from dpgenerative import search_privacy

EPSILONS = [0.3, 1.0, 3.0, 10.0]

folds = PredefinedSplit(np.random.default_rng(0).integers(2, size=len(X)))
search = GridSearchCV(
    model,
    {"synthesizer__epsilon": EPSILONS},
    cv=folds,
    scoring="roc_auc",
).fit(X, y)
results = pd.DataFrame(search.cv_results_)
shown = ["param_synthesizer__epsilon", "mean_test_score", "std_test_score"]
print(results[shown].to_string(index=False))
chosen = search.best_params_["synthesizer__epsilon"]
print(f"\nThe search prefers epsilon {chosen:g}: it weighs scores, not protection.\n")
print(search_privacy(search))

# %%
import matplotlib.pyplot as plt

figure, axes = plt.subplots(figsize=(5, 3.5), layout="constrained")
axes.errorbar(
    EPSILONS, results["mean_test_score"], results["std_test_score"], marker="o"
)
axes.set(xscale="log", xlabel="epsilon of one fit", ylabel="AUROC, held-out rows")
axes.set_xticks(EPSILONS, [f"{epsilon:g}" for epsilon in EPSILONS])
plt.show()

# %%
# A search within one budget
# --------------------------
# A random number of trials each draw a candidate, fit it to a random part of the rows,
# and score it on the rest, with noise. The best is kept, and nothing else released.
from dpgenerative import PrivateSearch

grid = {
    "synthesizer__clipping": ["flat", "per-layer"],
    "n_samples": [2000, 8000],
}
private = PrivateSearch(model, grid, epsilon=1.0, mean_trials=3).fit(X, y)
print(f"Chosen within epsilon 1: {private.best_params_}")
print(
    f"Accuracy {private.best_score_:.3f} on rows held out privately (its noise has "
    f"standard deviation {private.score_std_:.3f})."
)
print(private.privacy_)

# %%
# Trained on synthetic rows, tested on real ones
# ----------------------------------------------
# Beside it is the same classifier, trained on the private rows themselves. Both answer
# for women who took no part, and neither score is for release.
from sklearn.base import clone

classifier = private.best_estimator_.learner_
real = clone(classifier).fit(X, y)
print(f"Accuracy, trained on synthetic rows: {private.score(rest, y_rest):.3f}")
print(f"Accuracy, trained on private rows:   {real.score(rest, y_rest):.3f}")

# %%
# An attack on what was chosen
# ----------------------------
# An adversary who has the synthesizer sorts rows by their likelihood: those of the
# search should come first. An AUC of 0.5 is that of guessing, and the guarantee caps
# that of every attack. Answers that occur both among these rows and among others tell
# nothing, and are left out. ``attack.py`` attacks a model without privacy, too.
from dpgenerative.metrics import likelihood_attack

searched = X.assign(any_affair=y).drop_duplicates()
others = rest.assign(any_affair=y_rest).drop_duplicates()
both = searched.merge(others)
members, non_members = (
    pd.concat([rows, both, both]).drop_duplicates(keep=False)
    for rows in (searched, others)
)
synth = private.best_estimator_.synthesizer_
attack = likelihood_attack(
    lambda rows: synth.score_samples(rows[X.columns], rows["any_affair"]),
    members,
    non_members,
    privacy=private.privacy_.curve(),
)
auc = attack.auc
print(f"Likelihood attack: AUC {auc.value:.3f} ({auc.low:.3f} to {auc.high:.3f})")
print(f"At epsilon 1 no attack can expect more than {auc.cap:.3f}.")
