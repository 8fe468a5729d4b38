"""What the three papers print: figures with their places, as facts to compare with.

`papers.py`, `privae.py` and `bernau.py` compare the records of this folder with them.
Of pairs, the second figure is the spread that is printed behind a plus-minus sign.
"""

from __future__ import annotations

# Lee, Kim, Jeong and Ro (AAAI 2022) ---------------------------------------------------

# Text before the tables: what the model is made of.
HFLOW_SETUP = {
    "n_blocks": 3,
    "rank": 1,
    "linear": "low-rank",
    "dequantization": "variational",
    "optimizer": "adabelief",
    "learning_rate": 0.001,
}
# Table 1, Covertype at (1, 1e-5); rows are the two errors, columns the methods.
HFLOW_KENDALL = {
    "DP-CGAN": {"kendall_rmse": 0.4434, "kendall_mae": 0.3549},
    "GS-WGAN": {"kendall_rmse": 0.2058, "kendall_mae": 0.1396},
    "DP-MERF": {"kendall_rmse": 0.1863, "kendall_mae": 0.1342},
    "DP-HFlow": {"kendall_rmse": 0.0717, "kendall_mae": 0.0482},
}
# The columns of Tables 2 and 3. The first has no heading; its figures are those of the
# rows themselves, above all others.
HFLOW_COLUMNS = (
    "real rows",
    "DP-CGAN",
    "GS-WGAN",
    "DP-MERF",
    "DP-HFlow",
    "CTGAN, no privacy",
    "DP-MERF, no privacy",
    "DP-HFlow, no privacy",
)
_HFLOW_SCORES = {
    ("macro_f1", "adult"): ".79 .02 .46 .07 .42 .09 .37 .15 .56 .07 .74 .02 .41 .16 "
    ".75 .01",
    ("macro_f1", "census"): ".75 .01 .45 .09 .44 .13 .48 .14 .52 .03 .67 .04 .50 .14 "
    ".70 .04",
    ("macro_f1", "covertype"): ".77 .16 .15 .03 .11 .03 .31 .05 .22 .03 .22 .04 .29 "
    ".05 .49 .04",
    ("macro_f1", "intrusion"): ".86 .07 .19 .09 .13 .08 .36 .05 .40 .03 .54 .05 .38 "
    ".06 .46 .06",
    ("auroc", "adult"): ".90 .02 .53 .14 .48 .11 .63 .09 .75 .05 .86 .02 .65 .10 "
    ".87 .02",
    ("auroc", "census"): ".93 .02 .50 .16 .56 .20 .68 .13 .78 .06 .89 .04 .69 .11 "
    ".91 .04",
    ("average_precision", "adult"): ".77 .04 .28 .09 .25 .05 .34 .08 .50 .07 .66 .04 "
    ".39 .10 .70 .05",
    ("average_precision", "census"): ".59 .06 .07 .03 .10 .06 .15 .07 .17 .05 .43 "
    ".07 .15 .06 .49 .08",
}
# Table 2 (macro-F1; rows are the data sets) and Table 3 (AUROC and average precision,
# of Adult and Census alone): figure and spread by score, data set and column.
HFLOW_SCORES = {
    key: dict(zip(HFLOW_COLUMNS, zip(x[::2], x[1::2], strict=True), strict=True))
    for key, text in _HFLOW_SCORES.items()
    for x in [[float(word) for word in text.split()]]
}

# Bernau, Robl and Kerschbaum (arXiv:2204.07877) ---------------------------------------

# Section 4. It prints 70,610 for MotionSense, but two columns of Table 2 follow, to the
# last digit, from nine more.
MIA_RECORDS = {"LFW20": 1906, "LFW50": 2773, "MotionSense": 70619}
# Figures 3 and 4 and their text: accuracy of the classifier that learned from real and
# from generated rows, and average precision of the attack, without privacy.
MIA_REAL = {"LFW20": 0.78, "LFW50": 0.66, "MotionSense": 0.99}
MIA_GENERATED = {"MotionSense": 0.71}
MIA_ATTACK = {"images": 1.0, "series": 0.52}

# Table 1, rows "test accuracy": of the classifier, without noise or under central
# privacy (one column), then under local noise and VAE-LDP, both from little to much.
MIA_ACCURACY = {
    "LFW20": (0.98, (0.97, 0.97, 0.82, 0.55, 0.28), (0.94, 0.93, 0.98, 1, 1)),
    "LFW50": (0.95, (0.94, 0.93, 0.7, 0.41, 0.2), (0.9, 0.91, 0.97, 1, 1)),
    "MotionSense": (0.99, (0.98, 0.93, 0.8, 0.29, 0.25), (0.68, 0.53, 0.39, 0.3, 0.24)),
}
# Table 1, the other rows: least and greatest.
MIA_TRAINING = {
    "learning rate": (1e-5, 2.48e-3),
    "batch": (16, 256),
    "epochs": (6, 100),
}

MIA_MULTIPLIERS = (0.001, 0.01, 0.1, 0.5, 1.0)  # Table 2, row z
MIA_EPOCHS = 1000
# Table 2, CDP, by z: batches, epsilons, and the train-test gap, first without privacy.
# Micro-batches are 4 throughout.
MIA_NORMS = {"LFW20": 0.03, "LFW50": 0.02, "MotionSense": 3.4e-5}  # row C
MIA_CENTRAL = {
    "LFW20": (
        (32, 16, 64, 16, 32),
        (15948925900.96, 321853746.70, 372950.22, 295.07, 56.41),
        (260.3, 210.6, 62.5, 13.8, 17.9, 10.5),
    ),
    "LFW50": (
        (16, 16, 32, 32, 32),
        (47295786259.73, 468786259.73, 681781.38, 353.74, 43.31),
        (259.4, 195.4, 29.4, 9.2, 7.1, 33.0),
    ),
    "MotionSense": (
        (32, 32, 32, 32, 32),
        (120986947509.93, 1196947509.93, 1093201.38, 137.57, 15.73),
        (0.7, 0.4, 0.3, 0.1, 0.1, 0.0),
    ),
}
# Table 2, LDP: epsilon of one feature, that of everything, and the train-test gap.
MIA_LOCAL = {
    "LFW20": (
        (10000, 5000, 1000, 500, 100),
        (5.718e7, 2.859e7, 5.718e6, 2.859e6, 571800),
        (267, 265, 224, 160, 123),
    ),
    "LFW50": (
        (10000, 5000, 1000, 500, 100),
        (8.319e7, 4.1595e7, 8.319e6, 4.1595e6, 831900),
        (272, 264, 204, 21, 5),
    ),
    "MotionSense": (
        (10, 1, 0.5, 0.1, 0.01),
        (706190, 70619, 35309.5, 7061.9, 706.19),
        (0.7, 0.9, 2.7, 4.4, 4.8),
    ),
}
MIA_SIGMAS = (0.1, 1.0, 10.0, 100.0, 1000.0)  # Table 2, VAE-LDP, row sigma
# Table 2, VAE-LDP: number of latents (the authors' configuration), epsilons, and gaps.
MIA_VAE_LDP = {
    "LFW20": (100, (2366.15, 236.61, 23.66, 2.37, 0.24), (156, 145, 64, 3, 2)),
    "LFW50": (100, (2422.52, 242.25, 24.23, 2.42, 0.24), (168, 158, 68, 4, 3)),
    "MotionSense": (2, (404.96, 40.5, 4.05, 0.4, 0.04), (0.1, 0, 0.2, 0.1, 0)),
}
