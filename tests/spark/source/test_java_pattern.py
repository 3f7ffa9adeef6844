"""Java's regular expressions in Python: the same topics, or a refusal that says where."""

from __future__ import annotations

import random

import pytest
from pyspark.sql import SparkSession

from moldau.spark.source.java_pattern import PatternError, java_pattern

TOPICS = (
    "orders my-orders orders-2 Orders.EU a b ab aB AB.c a_b a-b aa aab abab x.y.z 2024-orders o "
    "__x A-1 ordersorders zz9"
)
NAMES = TOPICS.split()


def found(pattern: str) -> str:
    search = java_pattern(pattern).search
    return " ".join(name for name in NAMES if search(name))


@pytest.mark.parametrize(
    ("pattern", "topics"),
    [
        ("orders", "orders my-orders orders-2 2024-orders ordersorders"),
        ("^orders", "orders orders-2 ordersorders"),
        (r"\Aorders\z", "orders"),
        ("orders-2|zz", "orders-2 zz9"),
        (r"^\p{Upper}\p{Lower}++\.", "Orders.EU"),
        ("^[a-z&&[^b-n]]$", "a o"),
        ("^(?i)ORDERS$", "orders"),
        ("^o(?i:RDERS)$", "orders"),
        ("^a(?i)B|^ORDERS-", "orders-2 ab aB abab"),
        (r"^(?<word>\w+)\k<word>$", "aa abab ordersorders"),
        (r"\Q.\E", "Orders.EU AB.c x.y.z"),
        ("(?x) ^ a  b $  # two letters", "ab"),
        (r"^\x61\u0062\0141\x{62}$", "abab"),
        ("[]z]9", "zz9"),
        (r"\s|[^\x00-\x7f]", ""),
    ],
)
def test_what_java_finds_is_found(pattern: str, topics: str) -> None:
    assert found(pattern) == topics


@pytest.mark.parametrize(
    ("pattern", "position", "reason"),
    [
        ("*-orders", 0, "'*' repeats nothing"),
        ("orders(-eu", 6, "not closed"),
        ("orders)", 6, "closes no group"),
        ("a{,2}", 1, "not a repetition"),
        ("(?P<name>a)", 0, "Java has no group"),
        ("b(?<=a+)", 1, "supports lookbehind only for a fixed number"),
        (r"\1(a)", 0, "group 1 does not end before this"),
        (r"ab\y", 2, r"Java has no \y"),
        (r"a\p{Nonsense}", 1, "'Nonsense' is not known"),
        ("[b-a]", 1, "not a range"),
        (r"\Qab\E[c", 6, "not closed"),
        ("a\\", 1, "nothing follows the backslash"),
    ],
)
def test_what_has_no_equivalent_is_refused_with_its_position(
    pattern: str, position: int, reason: str
) -> None:
    with pytest.raises(PatternError, match=f"at position {position} of ") as raised:
        java_pattern(pattern)
    assert raised.value.position == position
    assert reason in str(raised.value)


PIECES = (
    r"a b o orders Orders . \. - _ [a-c] [^a-c] [a-z&&[^b]] [a-c[x-z]] [A-Z&&[^B]_] [^a-d&&c-f]"
    r" \d \D \w \W \s \S \p{Lower} \p{Upper} \P{Alpha} \p{L} \p{Lu} \pN \p{Punct} \p{IsLatin}"
    r" \p{gc=Ll} \p{IsAlphabetic} \p{javaLowerCase} \p{sc=Latn} \x61 \x{62} \u006f \0141 \Qa-b\E"
    r" [\Qa-c\E] \b \B ^ $ \A \z \Z \G \h \v \R \X []a] [a-] [-a] [a-c-e] [\d._] [a&&b] [&a] ] } #"
    r" \- [a-[b]] [^a&&[^b]] [+--] \1 \k<n> \t \cA \e [\p{Lower}&&[^a]] [^\W] (?i) (?-i) (?x) (?s)"
)
ATOMS = PIECES.split()
QUANTIFIERS = ["", "", "", "?", "*", "+", "{2}", "{1,2}", "{0,}", "*?", "++", "?+", "{1,}+"]
OPENINGS = ["(", "(?:", "(?<n>", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:", "(?i-x:", "(?-i:"]


def any_pattern(dice: random.Random, depth: int) -> str:
    kind = dice.random()
    if depth == 0 or kind < 0.45:
        return dice.choice(ATOMS) + dice.choice(QUANTIFIERS)
    if kind < 0.7:
        inner = any_pattern(dice, depth - 1)
        return f"{dice.choice(OPENINGS)}{inner}){dice.choice(QUANTIFIERS)}"
    between = "|" if kind < 0.8 else ""
    return any_pattern(dice, depth - 1) + between + any_pattern(dice, depth - 1)


@pytest.mark.spark
@pytest.mark.timeout(400)
def test_java_itself_finds_the_same_topics(spark: SparkSession) -> None:
    java = spark._jvm.java.util.regex.Pattern  # type: ignore[union-attr]
    dice = random.Random(5)
    patterns = [*ATOMS, *(f"(?i){atom}" for atom in ATOMS)]
    patterns += [any_pattern(dice, 3) for _ in range(150)]
    compared = 0
    for pattern in patterns:
        try:
            topics = found(pattern)
        except PatternError:
            continue
        theirs = java.compile(pattern)
        assert topics == " ".join(name for name in NAMES if theirs.matcher(name).find()), pattern
        compared += 1
    assert compared > len(patterns) / 2
