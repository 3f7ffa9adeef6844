"""JSON Schemas, parsed."""

from __future__ import annotations

import json
from collections.abc import Sequence

from moldau.schemas.incompatibility import Incompatibility
from moldau.schemas.json_schema.compatibility import reading_problems
from moldau.schemas.json_schema.documents import Documents
from moldau.schemas.schema import Dependency, InvalidSchema


class JsonSchema:
    """A valid schema, with the documents that it refers to."""

    def __init__(self, text: str, dependencies: Sequence[Dependency] = ()) -> None:
        self.documents = Documents(text, dependencies)
        self.documents.check_references()

    def check_keywords(self) -> None:
        """Raise InvalidSchema where a keyword is not as its draft says; for new schemas only."""
        try:
            import jsonschema
        except ImportError:
            raise InvalidSchema("to register a JSON Schema, install moldau[jsonschema]") from None
        root = self.documents.root
        try:
            draft = jsonschema.validators.validator_for(root, default=jsonschema.Draft7Validator)
            draft.check_schema(root)
        except jsonschema.SchemaError as problem:
            place = "/".join(map(str, problem.path))
            raise InvalidSchema(f"not a JSON Schema: {place or '/'}: {problem.message}") from None

    def canonical(self, *, normalize: bool = False) -> str:
        root = self.documents.root
        return json.dumps(root, sort_keys=normalize, separators=(",", ":"), ensure_ascii=False)

    def problems_reading(self, writer: JsonSchema) -> list[Incompatibility]:
        """Return why values that are valid by the other schema may not be by this one."""
        return reading_problems(self.documents, writer.documents)

    @property
    def full_name(self) -> str:
        root = self.documents.root
        return str(root.get("title", "")) if isinstance(root, dict) else ""
