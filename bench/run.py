"""The runner: runs the measurements and keeps the results beside this file.

`python -m bench.run [--quick] [NAME...]` takes all that `moldau bench` does, and those of
`bench.measure` besides. Without names it writes RESULTS.md and results.json.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from bench.measure import ALL
from bench.page import keep, keep_some
from moldau.bench.markdown import markdown
from moldau.bench.scale import FULL, QUICK
from moldau.bench.suite import run_suite


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.run", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="about a minute, smaller samples")
    parser.add_argument("--folder", type=Path, help="where the data goes until the end")
    parser.add_argument(
        "--keep", action="store_true", help="put the rows of NAME... into RESULTS.md, among others"
    )
    parser.add_argument("only", nargs="*", metavar="NAME", help=", ".join(ALL))
    chosen = parser.parse_args()
    for name in chosen.only:
        if name not in ALL:
            parser.error(f"{name!r} is none of {', '.join(ALL)}")
    report = run_suite(
        QUICK if chosen.quick else FULL,
        measurements=ALL,
        only=chosen.only,
        parent=chosen.folder,
        say=lambda text: print(text, flush=True),
    )
    print(markdown(report))
    if not chosen.only:
        keep(report)
    elif chosen.keep:
        keep_some(report, ALL)


if __name__ == "__main__":
    main()
