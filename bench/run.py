"""Run the measurements and keep the results beside this file.

`python -m bench.run [--quick] [NAME...]` writes RESULTS.md and results.json. The measuring code
is `moldau.bench`, in the package, so that `moldau bench` works wherever moldau is installed.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from bench.page import keep
from moldau.bench.markdown import markdown
from moldau.bench.measure import MEASUREMENTS
from moldau.bench.scale import FULL, QUICK
from moldau.bench.suite import run_suite


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.run", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="about a minute, smaller samples")
    parser.add_argument("--folder", type=Path, help="where the data goes until the end")
    parser.add_argument("only", nargs="*", metavar="NAME", help=", ".join(MEASUREMENTS))
    chosen = parser.parse_args()
    for name in chosen.only:
        if name not in MEASUREMENTS:
            parser.error(f"{name!r} is none of {', '.join(MEASUREMENTS)}")
    report = run_suite(
        QUICK if chosen.quick else FULL,
        only=chosen.only,
        parent=chosen.folder,
        say=lambda text: print(text, flush=True),
    )
    print(markdown(report))
    if not chosen.only:
        keep(report)


if __name__ == "__main__":
    main()
