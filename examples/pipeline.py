"""
A pipeline, sampled in the columns that went in
===============================================

Steps before the synthesizer see the private rows as they are. One that learns nothing
from them (a function, a choice of columns) changes no guarantee; a scaler or encoder
that is fitted to them releases what it learned, without noise. So the order is: public
steps, then the synthesizer, then, on synthetic rows, whatever you like.
"""

# %%
# Public steps
# ------------
# Take logarithms of one column and leave the others: nothing is learned.
# ``check_inverse=False``, because the check would warn of values of private rows.
import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.preprocessing import FunctionTransformer

from dpgenerative.datasets import load_fair

pd.set_option("display.precision", 2)

COLUMNS = ["age", "yrs_married", "religious", "affairs"]

fair = load_fair()
frame = fair.data[COLUMNS]
logarithm = FunctionTransformer(
    np.log1p,
    inverse_func=np.expm1,
    check_inverse=False,
    feature_names_out="one-to-one",
)
public_steps = make_column_transformer(
    (logarithm, ["affairs"]),
    remainder="passthrough",
    verbose_feature_names_out=False,
).set_output(transform="pandas")

# %%
# The synthesizer last
# --------------------
# The schema says what is public about the columns as the synthesizer sees them, after
# the steps. The budget refuses the fit that would exceed a total.
from sklearn.pipeline import make_pipeline

from dpgenerative import (
    Column,
    DPHFlowSynthesizer,
    PrivacyBudget,
    Schema,
    SyntheticRegressor,
    sample_from,
)
from dpgenerative.exceptions import BudgetExceededError

stated = [fair.schema[name] for name in COLUMNS[:-1]]
upper = float(np.log1p(144 / 0.5))
schema = Schema([*stated, Column("affairs", "continuous", lower=0, upper=upper)])

with PrivacyBudget(epsilon=2.0, delta=2e-5) as budget:
    flow = DPHFlowSynthesizer(epsilon=1.0, schema=schema)
    pipeline = make_pipeline(public_steps, flow).fit(frame)
    print("A sample of the pipeline, undone to the columns that went in:\n")
    print(sample_from(pipeline, 5).to_string())

    model = SyntheticRegressor(DPHFlowSynthesizer(epsilon=1.0, schema=fair.schema))
    X, y = fair.data.drop(columns="rate_marriage"), fair.data["rate_marriage"]
    model.fit(X, y)
    print(f"\nPredictions by synthetic rows: {model.predict(X[:3]).round(2)}")
    print(budget)
    try:
        flow.fit(frame)
    except BudgetExceededError as error:
        print(f"Refused: {error}")

# %%
# A larger sample beside the private rows, in the units that went in. The picture shows
# private rows as they are: it is not for release.
import matplotlib.pyplot as plt

tables = {"private": frame, "synthetic": sample_from(pipeline, 6000)}
shares = pd.DataFrame(
    {
        name: table["yrs_married"].value_counts(normalize=True)
        for name, table in tables.items()
    }
)
shares.plot.bar(figsize=(6, 3), xlabel="years married", ylabel="share of rows", rot=0)
plt.tight_layout()
plt.show()

# %%
# A step that learns
# ------------------
# With a scaler that is fitted to private rows, a warning names what no noise covers.
import warnings

from sklearn.preprocessing import StandardScaler

with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    unsafe = make_pipeline(StandardScaler(), DPHFlowSynthesizer(n_steps=20))
    sample_from(unsafe.fit(frame), 5)
print(seen[-1].message)
