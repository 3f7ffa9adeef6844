"""Errors of Spark in one readable message: what happened, without the stack of the JVM."""

from __future__ import annotations

import re
from dataclasses import dataclass

# The last line of a Python traceback: the exception's class and its message.
_RAISED = re.compile(r"^([A-Za-z_][\w.]*): (.+?)(?=^\s*$|^\s+at |^JVM|\Z)", re.M | re.S)
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_.]+)\] ")
_NOISE = (
    re.compile(r"\s*SQLSTATE: \w+"),
    re.compile(r"[;.]?\s*line \d+,? pos(?:ition)? \d+;?.*", re.S),
    re.compile(r"\n\s*at [\w.$/<>]+\(.*", re.S),
    re.compile(r"\n\n?JVM stacktrace:.*", re.S),
    re.compile(r"\n?=+ (SQL|DataFrame|Streaming Query|Current|Analyzed|Logical|Physical).*", re.S),
    re.compile(r"\n\nDriver stacktrace:.*", re.S),
    re.compile(r";\n.*", re.S),
)
_SQL = re.compile(r"== SQL(?: of .*?)? \(line (\d+), position (\d+)\) ==\n(.*?)\n\s*\^", re.S)
_JAVA = re.compile(r"(?:[a-z]\w*\.)+[A-Z][\w$]*(?:Exception|Error): ")


@dataclass(frozen=True, slots=True)
class SqlPlace:
    """A place in an SQL text: a line from 1, a column from 0, and the text there if known."""

    line: int
    column: int
    fragment: str = ""


def in_words(problem: BaseException) -> str:
    """Return one message, without what Spark wraps around our own errors."""
    text = str(problem)
    if "Traceback (most recent call last)" in text:
        own = _of_traceback(text)
        if own:
            return own
    return _without_noise(text) or type(problem).__name__


def sql_place(problem: BaseException) -> SqlPlace | None:
    """Return where in the SQL of a table the error is, if Spark says so."""
    text = str(problem)
    marked = _SQL.search(text)
    if marked is not None:
        return SqlPlace(int(marked[1]), int(marked[2]), marked[3].splitlines()[0].strip())
    plain = re.search(r"\(?line (\d+),? pos(?:ition)? (\d+)\)?", text)
    if plain is not None:
        return SqlPlace(int(plain[1]), int(plain[2]))
    return None


def _of_traceback(text: str) -> str:
    last = text[text.rindex("Traceback (most recent call last)") :]
    raised = _RAISED.findall(last)
    if not raised:
        return ""
    name, message = raised[-1]
    short = name.rpartition(".")[2]
    words = _without_noise(message)
    # Our own errors are sentences; of others the kind is half of what they say.
    return words if name.startswith("moldau.") else f"{short}: {words}"


def _without_noise(text: str) -> str:
    # The innermost cause of a failed job comes last before the stacks.
    found = [match.end() for match in _JAVA.finditer(text.split("\n\tat ")[0])]
    if found:
        text = text[found[-1] :]
    condition = list(_CONDITION.finditer(text))
    if condition:
        text = text[condition[-1].end() :]
    for noise in _NOISE:
        text = noise.sub("", text)
    return " ".join(text.split())
