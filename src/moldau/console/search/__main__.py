"""`python -m moldau.console.search`: the process of one search."""

from __future__ import annotations

from moldau.console.search.worker import main

if __name__ == "__main__":
    main()
