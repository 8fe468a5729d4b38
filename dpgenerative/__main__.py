"""``python -m dpgenerative``: the command line."""

import sys

from dpgenerative.cli import main

if __name__ == "__main__":
    sys.exit(main())
