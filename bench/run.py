"""Run the measurements and keep the results beside this file.

`python bench/run.py [--quick] [NAME...]` writes RESULTS.md and results.json. The measuring code
is `moldau.bench`, in the package, so that `moldau bench` works wherever moldau is installed.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import msgspec

from moldau.bench.markdown import markdown
from moldau.bench.measure import MEASUREMENTS
from moldau.bench.scale import FULL, QUICK
from moldau.bench.suite import run_suite

HERE = Path(__file__).parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
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
    text = markdown(report)
    print(text)
    if not chosen.only:
        (HERE / "RESULTS.md").write_text(text)
        encoded = msgspec.json.format(msgspec.json.encode(report), indent=2)
        (HERE / "results.json").write_bytes(encoded + b"\n")


if __name__ == "__main__":
    main()
