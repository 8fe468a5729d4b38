"""
Network intrusions: a detector from traffic that nobody sees
============================================================

Who watches a network wants to hand traffic to those who build detectors, and may not.
The contest of KDD 1999 published 311,029 connections of a simulated air-force network,
its official test part: normal ones and 37 kinds of attack (UCI, CC BY 4.0). Of 30,000
of them a private copy is made. Do detectors that learn from it find attacks in traffic
that comes later?

The file, ``intrusion_official_test.parquet``, is read from the folder that the variable
``DPGENERATIVE_DATA`` names, since no package brings it along. (The 10 % file of the
same contest, with other attacks, is among the tables that defaults were chosen on. All
other stories are about tables that chose nothing.)
"""

# %%
# What is public
# --------------
# The sensor's manual: protocols, flags of a connection, and which columns are shares
# between 0 and 1, in steps of a hundredth. Seconds, bytes and counts have no bounds
# that a stranger could know: they are found, and long tails cut. Services and kinds of
# attack are strings whose levels are *not* stated: which services a network offers, and
# what attacked it, is what an attacker would like to know. They are found privately,
# and the rare ones are not.
import os
import sys
from functools import partial
from pathlib import Path

import pandas as pd

from dpgenerative import Column, DPHFlowSynthesizer, Schema

folder = os.environ.get("DPGENERATIVE_DATA")
if folder is None:
    sys.exit("DPGENERATIVE_DATA names no folder with intrusion_official_test.parquet.")
traffic = pd.read_parquet(Path(folder) / "intrusion_official_test.parquet")

FLAGS = ["SF", "S0", "S1", "S2", "S3", "OTH", "REJ", "RSTO", "RSTOS0", "RSTR", "SH"]
COUNTS = ["count", "srv_count", "dst_host_count", "dst_host_srv_count"]
NUMBERS = ["duration", "src_bytes", "dst_bytes", *COUNTS]
RATES = [
    *("serror_rate", "rerror_rate", "same_srv_rate", "diff_srv_rate"),
    *("dst_host_same_srv_rate", "dst_host_same_src_port_rate"),
    *("dst_host_serror_rate", "dst_host_rerror_rate"),
]
column = partial(Column, nullable=False)
schema = Schema(
    [
        *(column(name, "integer") for name in NUMBERS),
        column("protocol_type", "categorical", levels=["icmp", "tcp", "udp"]),
        column("flag", "categorical", levels=FLAGS),
        column("logged_in", "categorical", levels=["0", "1"]),
        *(
            column(name, "continuous", lower=0, upper=1, resolution=0.01)
            for name in RATES
        ),
        column("service", "categorical"),
        column("label", "categorical"),
    ]
)
traffic = traffic[list(schema.names)]
for name in ("service", "label"):
    traffic[name] = traffic[name].astype(object)

# %%
# One private copy, of connections
# --------------------------------
# The guarantee hides **one connection**, not a host that made thousands, nor an attack
# that is nothing but its twenty thousand packets. To protect hosts, keep one row each,
# or state ``max_rows_per_unit``.
private = traffic.sample(30_000, random_state=0)
later = traffic.drop(index=private.index).sample(60_000, random_state=0)
synth = DPHFlowSynthesizer(epsilon=1.0, delta=1e-5, schema=schema).fit(private)
synthetic = synth.sample(len(private))
print(synth.privacy_)

# %%
# Which attacks does the detector find?
# -------------------------------------
# The same classifier learns from either table to tell attacks from normal traffic. Its
# threshold lets one in a hundred normal connections raise a false alarm. Bars show the
# share of later connections that are found, the commonest kinds first. Floods that
# nobody can miss are found from either table. Of kinds that noise hides, the copy has
# no row, and whether they are found depends on what they resemble and on the noise of
# the fit. (``snmpgetattack`` looks like normal traffic in every column.)
import matplotlib.pyplot as plt
import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.preprocessing import OrdinalEncoder

codes = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
texts = ["protocol_type", "flag", "service"]
codes.fit(private[texts].astype(object))


def features(table: pd.DataFrame) -> pd.DataFrame:
    """Return numbers for a classifier."""
    numbers = table.drop(columns="label")
    numbers[texts] = codes.transform(table[texts].astype(object))
    return numbers.astype(float)


kinds = later["label"]
normal = (kinds == "normal").to_numpy()
found, seen = {}, {}
for name, table in {"private": private, "synthetic": synthetic}.items():
    detector = HistGradientBoostingClassifier(max_iter=50, random_state=0)
    detector.fit(features(table), table["label"] != "normal")
    alarm = detector.predict_proba(features(later))[:, 1]
    found[name] = alarm > np.quantile(alarm[normal], 0.99)
    seen[f"in {name} rows"] = table["label"].value_counts()
rates = 100 * pd.DataFrame(found).groupby(kinds.to_numpy()).mean()
rates = rates.join(pd.DataFrame(seen)).fillna(0)
rates["in later rows"] = kinds.value_counts()
rates = rates[rates["in later rows"] >= 25].sort_values(
    "in private rows", ascending=False
)
print(rates.round(0).astype(int).to_string())

shown = rates.drop(index="normal")[::-1]
shown.index += [f" ({count:,.0f})" for count in shown["in private rows"]]
axes = shown[["synthetic", "private"]].plot.barh(
    figsize=(8, 6), color=["#b3390a", "0.7"], width=0.75, legend=False
)
axes.set(
    xlabel="percent found at 1 % false alarms",
    ylabel="kind of attack (connections among private rows)",
    title="What detectors find that learned from private and from synthetic rows",
)
handles, names = axes.get_legend_handles_labels()
legend = {"loc": "center left", "bbox_to_anchor": (1, 0.5), "title": "learned from"}
axes.legend(handles[::-1], names[::-1], **legend)
plt.tight_layout()
plt.show()

# %%
# The page for whoever decides
# ----------------------------
# Later connections serve the attack, which must tell them from private ones. Many
# repeat each other and can only be confused, so that its failure says little here.
from dpgenerative.metrics import report

page = report(private, synthetic, holdout=later.head(7_500), synthesizer=synth)
Path("stories-output").mkdir(exist_ok=True)
page.save("stories-output/network.html")
print(page)
page

# %%
# What not to use it for
# ----------------------
# - **Rare attacks.** A kind with fewer connections than noise can hide has no row of
#   its own in the copy. It is found if it looks like another that has, and missed
#   otherwise: train on the copy, but test on traffic of your own.
# - **Single packets and exploits.** Counters that are zero in nearly all rows (failed
#   logins, shells, files) were left out here; the model would say zero everywhere.
# - **Sessions, hosts, time.** Rows know nothing of each other. What spans several
#   connections is only there as far as a column counts it.
# - **A claim that no host can be found out.** The guarantee is about a connection.
