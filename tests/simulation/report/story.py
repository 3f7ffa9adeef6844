"""The story of a run: what happened, line by line, as text and as a page with a timeline."""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path

from tests.simulation.scenario.outcome import Outcome

Line = tuple[float, str, str]

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<style>
body {{ font: 13px/1.4 system-ui, sans-serif; margin: 1.5em; color: #222; background: #fff; }}
pre {{ background: #f4f4f4; padding: .8em; overflow-x: auto; }}
table {{ border-collapse: collapse; }}
th {{ position: sticky; top: 0; background: #333; color: #fff; text-align: left; }}
th, td {{ padding: 1px 8px; vertical-align: top; border-left: 1px solid #ddd; max-width: 34em; }}
td.time {{ font-family: monospace; text-align: right; white-space: nowrap; border: none; }}
tr.fault {{ background: #ffe3c4; }} tr.violation {{ background: #ffb3b3; font-weight: bold; }}
tr.message td {{ color: #888; font-size: 11px; }} tr.warning td {{ color: #9a5b00; }}
tr:hover {{ outline: 1px solid #36c; }}
body.no-message tr.message, body.no-log tr.log, body.no-log tr.warning {{ display: none; }}
</style></head><body class="no-message">
<h1>{title}</h1>
<p><b>{failure}</b></p>
<pre>{scenario}</pre>
<p><label><input type="checkbox" checked onchange="document.body.classList.toggle('no-log')"> log
lines</label>
<label><input type="checkbox" onchange="document.body.classList.toggle('no-message')"> messages
</label></p>
<table><tr><th>seconds</th>{heads}</tr>
{rows}
</table></body></html>
"""


def text(outcome: Outcome, story: Sequence[Line]) -> str:
    """The story as lines of text, the most telling ones marked."""
    lines = [str(outcome.scenario), "", f"FAILURE: {outcome.failure}", ""]
    for at_s, who, what in story:
        mark = {"fault": "!", "violation": "#"}.get(_kind(who, what), " ")
        lines.append(f"{mark} {at_s:10.4f}  {who:<14} {what}")
    return "\n".join(lines) + "\n"


def page(outcome: Outcome, story: Sequence[Line]) -> str:
    """The story as a timeline: a row for each moment, a column for each of those who act."""
    actors: list[str] = []
    for _, who, _ in story:
        actor = _actor(who)
        if actor not in actors:
            actors.append(actor)
    actors.sort(key=lambda name: (not name.startswith("broker"), name))
    rows = []
    for at_s, who, what in story:
        kind = _kind(who, what)
        if kind in ("fault", "violation"):
            cells = f'<td colspan="{len(actors)}">{html.escape(what)}</td>'
        else:
            place = actors.index(_actor(who))
            cells = "<td></td>" * place + f"<td>{html.escape(what)}</td>"
            cells += "<td></td>" * (len(actors) - place - 1)
        rows.append(f'<tr class="{kind}"><td class="time">{at_s:.4f}</td>{cells}</tr>')
    return _PAGE.format(
        title=f"Seed {outcome.scenario.seed}",
        failure=html.escape(outcome.failure or "nothing went wrong"),
        scenario=html.escape(str(outcome.scenario)),
        heads="".join(f"<th>{html.escape(actor)}</th>" for actor in actors),
        rows="\n".join(rows),
    )


def write(folder: Path, outcome: Outcome) -> tuple[Path, Path]:
    """Write both into a folder; return where they are."""
    folder.mkdir(parents=True, exist_ok=True)
    as_text = folder / f"seed-{outcome.scenario.seed}.txt"
    as_page = folder / f"seed-{outcome.scenario.seed}.html"
    as_text.write_text(text(outcome, outcome.story), "utf-8")
    as_page.write_text(page(outcome, outcome.story), "utf-8")
    return as_text, as_page


def _actor(who: str) -> str:
    return who.partition("#")[0]


def _kind(who: str, what: str) -> str:
    if who == "FAULT":
        return "fault"
    if what.startswith("VIOLATION"):
        return "violation"
    if what.startswith("-> "):
        return "message"
    return "warning" if what.startswith(("[WARNING]", "[ERROR]", "[CRITICAL]")) else "log"
