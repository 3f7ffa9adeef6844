"""`python -m moldau` is the `moldau` command."""

import sys

from moldau.cli import main

if __name__ == "__main__":
    sys.exit(main())
