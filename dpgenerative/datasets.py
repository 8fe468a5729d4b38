"""Survey of married women by the magazine Redbook (1974).

As published in R. C. Fair, "A Theory of Extramarital Affairs", Journal of Political
Economy 86 (1978), 45-61, and distributed with statsmodels with the author's permission.
6,366 rows, no value missing.

================= ====================================================================
column            meaning
================= ====================================================================
rate_marriage     how she rates her marriage: 1 very poor to 5 very good
age               stands for a bracket of years: 17.5 for under 20, 42 for 40 and over
yrs_married       stands for a bracket of years married: 0.5 for less than one
children          number; 5.5 stands for five and more
religious         1 not, 2 mildly, 3 fairly, 4 strongly
educ              9 grade school, 12 high school, 14 some college, 16 college graduate,
                  17 some graduate school, 20 advanced degree
occupation        1 student; 2 farming, agriculture, semi-skilled or unskilled worker;
                  3 white-collar; 4 teacher, counsellor, nurse, artist, technician,
                  skilled worker; 5 managerial, administrative, business;
                  6 professional with advanced degree
occupation_husb   the same codes, for her husband
affairs           time spent in extramarital affairs: the product of two coded answers,
                  12 each at most, divided by yrs_married
================= ====================================================================

The first eight columns hold codes, which the schema lists as levels: ordered ones, but
for the occupations. The last is a number of at most 12 x 12 / 0.5. The target is
affairs, usually read as the question whether it is above zero.
"""

from sklearn.utils import Bunch

from dpgenerative.tables.column import Column
from dpgenerative.tables.schema import Schema

_ORDERED_CODES = {
    "rate_marriage": (1.0, 2.0, 3.0, 4.0, 5.0),
    "age": (17.5, 22.0, 27.0, 32.0, 37.0, 42.0),
    "yrs_married": (0.5, 2.5, 6.0, 9.0, 13.0, 16.5, 23.0),
    "children": (0.0, 1.0, 2.0, 3.0, 4.0, 5.5),
    "religious": (1.0, 2.0, 3.0, 4.0),
    "educ": (9.0, 12.0, 14.0, 16.0, 17.0, 20.0),
}
_OCCUPATIONS = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0)
_MOST_AFFAIRS = 12 * 12 / 0.5
"""Two coded answers of at most 12 are multiplied, and divided by yrs_married >= 0.5."""


def load_fair() -> Bunch:
    """Load Fair's survey of extramarital affairs, bundled with statsmodels.

    6,366 rows about a matter that nobody would wish to see leaked, and no download.

    Returns
    -------
    Bunch
        With `data` (DataFrame of 9 float columns), `schema` (`Schema`, the published
        code book: levels of the eight coded columns, bounds of the last), `target`
        (``"affairs"``, most often read as ``affairs > 0``) and `DESCR`.

    Raises
    ------
    ImportError
        If statsmodels is not installed.

    Examples
    --------
    >>> fair = load_fair()
    >>> fair.data.shape
    (6366, 9)
    >>> fair.schema["affairs"]
    Column('affairs', 'continuous', lower=0.0, upper=288.0, nullable=False)
    """
    try:
        from statsmodels.datasets import fair
    except ImportError as error:
        raise ImportError(
            "load_fair reads a table that statsmodels bundles. Install it: "
            'pip install "dpgenerative[fair]".'
        ) from error
    unordered = dict.fromkeys(("occupation", "occupation_husb"), _OCCUPATIONS)
    columns = [
        Column(n, "categorical", levels=x, ordered=n not in unordered, nullable=False)
        for n, x in (_ORDERED_CODES | unordered).items()
    ]
    affairs = Column(
        "affairs", "continuous", lower=0.0, upper=_MOST_AFFAIRS, nullable=False
    )
    schema = Schema([*columns, affairs])
    data = fair.load_pandas().data[list(schema.names)].astype(float)
    return Bunch(data=data, schema=schema, target="affairs", DESCR=__doc__)
