"""Documents: a JSON Schema and those that it refers to, and what a `$ref` in them points to."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

from moldau.schemas.schema import Dependency, InvalidSchema, check_depth

# Keywords that say nothing about which values are valid.
ANNOTATIONS = frozenset(
    (
        "$id", "id", "$schema", "$comment", "$anchor", "$dynamicAnchor", "$vocabulary", "$defs",
        "definitions", "title", "description", "default", "examples", "example", "deprecated",
        "readOnly", "writeOnly", "format", "contentEncoding", "contentMediaType",
        "contentSchema",
    )
)  # fmt: skip

Node = Any


class Documents:
    """All documents that one schema needs, by the names under which they are referred to."""

    def __init__(self, text: str, dependencies: Sequence[Dependency] = ()) -> None:
        self._by_name: dict[str, Node] = {}
        # The document that a schema is part of, by identity: references are relative to it.
        self._home: dict[int, Node] = {}
        self._base: dict[int, str] = {}
        for dependency in dependencies:
            self._add(loaded(dependency.schema), dependency.name)
        self.root = loaded(text)
        self._add(self.root, "")

    def _add(self, document: Node, name: str) -> None:
        base = document.get("$id") or document.get("id") if isinstance(document, Mapping) else None
        base = base if isinstance(base, str) else name
        self._by_name[name] = document
        self._by_name.setdefault(urldefrag(base).url, document)
        waiting = [(document, base)]
        while waiting:
            node, around = waiting.pop()
            if isinstance(node, Mapping):
                self._home[id(node)] = document
                own = node.get("$id")
                if isinstance(own, str) and node is not document:
                    around = urljoin(around, own)
                    self._by_name.setdefault(urldefrag(around).url, node)
                self._base[id(node)] = around
                waiting += [(inner, around) for inner in node.values()]
            elif isinstance(node, list):
                waiting += [(inner, around) for inner in node]

    def target(self, node: Mapping[str, Any]) -> Node:
        """Return what the `$ref` of a schema points to; InvalidSchema if there is nothing."""
        reference = node["$ref"]
        if not isinstance(reference, str):
            raise InvalidSchema(f"$ref is {reference!r}, but must be a string")
        url, fragment = urldefrag(reference)
        if url:
            around = self._base.get(id(node), "")
            document = self._by_name.get(url, self._by_name.get(urljoin(around, url)))
            if document is None:
                raise InvalidSchema(f"$ref {reference!r}: no reference is named {url!r}")
        else:
            document = self._home.get(id(node), self.root)
        return _inside(document, unquote(fragment), reference)

    def check_references(self) -> None:
        """Raise InvalidSchema if a `$ref` leads nowhere, or in a ring of nothing but `$ref`s."""
        for node in list(self._every(self.root)):
            seen = set()
            while isinstance(node, Mapping) and "$ref" in node:
                if id(node) in seen:
                    raise InvalidSchema(f"$ref {node['$ref']!r} is circular")
                seen.add(id(node))
                node = self.target(node)

    def _every(self, document: Node) -> Any:
        waiting = [document]
        while waiting:
            node = waiting.pop()
            if isinstance(node, Mapping):
                if isinstance(node.get("$ref"), str):
                    yield node
                # What stands in an enum, a constant or an example is no schema.
                waiting += [
                    inner
                    for key, inner in node.items()
                    if key not in ("enum", "const", "default", "examples", "example")
                ]
            elif isinstance(node, list):
                waiting += node


def _inside(document: Node, fragment: str, reference: str) -> Node:
    if not fragment:
        return document
    if not fragment.startswith("/"):
        found = _anchor(document, fragment)
        if found is None:
            raise InvalidSchema(f"$ref {reference!r}: there is no anchor {fragment!r}")
        return found
    node = document
    for token in fragment[1:].split("/"):
        token = token.replace("~1", "/").replace("~0", "~")
        if isinstance(node, Mapping) and token in node:
            node = node[token]
        elif isinstance(node, list) and token.isdecimal() and int(token) < len(node):
            node = node[int(token)]
        else:
            raise InvalidSchema(f"$ref {reference!r}: there is no {fragment!r}")
    return node


def _anchor(document: Node, name: str) -> Node | None:
    waiting = [document]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Mapping):
            if name in (node.get("$anchor"), node.get("$dynamicAnchor")):
                return node
            if node.get("$id") == f"#{name}" or node.get("id") == f"#{name}":
                return node
            waiting += list(node.values())
        elif isinstance(node, list):
            waiting += node
    return None


def loaded(text: str) -> Node:
    """Parse the text of a JSON Schema: an object, or a boolean."""
    check_depth(text)
    try:
        found = json.loads(text)
    except ValueError as problem:
        raise InvalidSchema(f"not JSON: {problem}") from None
    if not isinstance(found, dict | bool):
        raise InvalidSchema("a JSON Schema is an object or a boolean")
    return found
