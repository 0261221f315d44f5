"""`python -m consilience`, for where the command itself is not on the path."""

import sys

from consilience.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
