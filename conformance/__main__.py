"""`python -m conformance [WORD ...]`: compare the brokers in the cases that contain a word."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from types import FrameType

from bench.kafka.jars import kafka_version
from conformance import cases
from conformance.brokers import both
from conformance.registry import chosen
from conformance.report import lines, unmet
from conformance.runner import Verdict, run
from moldau.bench.errors import BenchFailed, Unavailable

SKIPPED = 75


def main() -> int:
    parser = argparse.ArgumentParser(prog="conformance", description=__doc__)
    parser.add_argument("--list", action="store_true", help="name the cases and do nothing")
    parser.add_argument("--verbose", action="store_true", help="name each case as it ends")
    parser.add_argument("only", nargs="*", metavar="WORD", help="cases that contain one of these")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, _end)
    cases.load()
    wanted = list(chosen(asked.only))
    if asked.list:
        for case in wanted:
            print(f"{case.group}: {case.label}")
        return 0
    started = time.monotonic()

    def say(text: str) -> None:
        if asked.verbose:
            print(f"{time.monotonic() - started:6.1f} s  {text}", file=sys.stderr, flush=True)

    try:
        print(f"Moldau beside Apache Kafka {kafka_version()}", flush=True)
        verdicts: dict[str, Verdict] = {}
        for locked in (False, True):
            own = [case for case in wanted if case.locked == locked]
            if own:
                with both(locked=locked) as brokers:
                    verdicts |= run(own, *brokers, say)
    except Unavailable as reason:
        print(f"The comparison is skipped: {reason}", file=sys.stderr)
        return SKIPPED
    except BenchFailed as problem:
        print(f"The comparison could not run: {problem}", file=sys.stderr)
        return 2
    for line in lines(verdicts):
        print(line)
    # What is explained and does not happen would hide the next difference of its kind.
    idle = [] if asked.only else list(unmet(verdicts))
    for line in idle:
        print(line)
    count = sum(len(verdict.unexplained) for verdict in verdicts.values())
    answers = sum(verdict.answers for verdict in verdicts.values())
    print(f"\n{answers} answers compared in {time.monotonic() - started:.0f} s, ", end="")
    print(f"{count} unexplained differences" if count else "no unexplained difference")
    return 1 if count or idle else 0


def _end(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
