"""
Fits side by side, on a cluster
===============================

Fits that do not depend on each other, as those of a search or a study, need no process
group: joblib runs them, on any of its back ends. Here it is a cluster of Dask's on this
machine where Dask is installed (``pip install distributed``), else joblib's processes.
The search is one over public rows: ``grid_search.py`` says why.
"""

# %%
# Where fits run
# --------------
# Dask's workers import this file, so that what starts them is not run by them.
from contextlib import contextmanager

from joblib import parallel_config

try:
    from dask.distributed import Client, LocalCluster
except ImportError:
    LocalCluster = None


@contextmanager
def workers(n):
    """Let joblib run on a cluster of n processes."""
    if LocalCluster is None:
        with parallel_config(n_jobs=n):
            yield "joblib's own processes"
        return
    cluster = LocalCluster(n_workers=n, threads_per_worker=1, dashboard_address=None)
    with cluster, Client(cluster), parallel_config("dask"):
        yield "a cluster of Dask's"


# %%
# A search
# --------
from sklearn.model_selection import GridSearchCV

from dpgenerative import DPHFlowSynthesizer, Schema, SyntheticClassifier
from dpgenerative.datasets import load_fair

fair = load_fair()
rows = fair.data.sample(2000, random_state=0)
X, y = rows.drop(columns=fair.target), (rows[fair.target] > 0).rename("any_affair")
schema = Schema(column for column in fair.schema.columns if column.name != fair.target)
flow = DPHFlowSynthesizer(schema=schema, n_steps=60)
search = GridSearchCV(
    SyntheticClassifier(flow, random_state=0),
    {"synthesizer__epsilon": [0.5, 5.0]},
    scoring="roc_auc",
    cv=2,
)

if __name__ == "__main__":
    with workers(2) as where:
        search.fit(X, y)
    scores = search.cv_results_["mean_test_score"].round(2)
    print(f"Scores from fits on {where}: {scores}")
