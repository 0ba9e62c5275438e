"""The words of JSON Schema that docs/estimate.schema.json uses; any other word fails."""

from __future__ import annotations

from typing import Any

_TYPES: dict[str, tuple[type, ...]] = {
    "array": (list,), "object": (dict,), "string": (str,), "boolean": (bool,), "null": (type(None),),
    "integer": (int,), "number": (int, float),
}  # fmt: skip
_SILENT = {"$schema", "$defs", "title", "description"}
OPEN = {"diagnostics"}
"""Objects with keys of their own."""


def breaches(value: Any, schema: dict[str, Any], root: dict[str, Any], at: str = "$") -> list[str]:
    """Where a value breaks a schema, and keys that it does not describe."""
    found, known = _breaches(value, schema, root, at)
    if isinstance(value, dict) and at.rpartition(".")[2] not in OPEN:
        found += [f"{at}: {key!r} is not described" for key in value if key not in known]
    return found


def _breaches(value: Any, schema: dict[str, Any], root: dict[str, Any], at: str) -> tuple[list[str], set[str]]:
    """Breaches, and the keys of an object that are described."""
    found, known = [], set(schema.get("properties", ()))
    inner = [schema["$ref"]] if "$ref" in schema else []
    for part in [root["$defs"][name.removeprefix("#/$defs/")] for name in inner] + schema.get("allOf", []):
        wrong, more = _breaches(value, part, root, at)
        found, known = found + wrong, known | more
    for word, asked in schema.items():
        if word == "type":
            kinds = [asked] if isinstance(asked, str) else asked
            fits = any(isinstance(value, _TYPES[kind]) for kind in kinds)
            fits = fits and not (isinstance(value, bool) and "boolean" not in kinds)
        elif word in ("enum", "const"):
            fits = value in (asked if word == "enum" else [asked])
        elif word in ("minimum", "maximum"):
            fits = value >= asked if word == "minimum" else value <= asked
        elif word == "minItems":
            fits = len(value) >= asked
        elif word == "required":
            fits = set(asked) <= set(value)
        elif word == "anyOf":
            fits = any(not breaches(value, each, root, at) for each in asked)
            known |= set(value or ()) if fits else set()
        else:
            assert word in {"$ref", "allOf", "properties", "items", "prefixItems", *_SILENT}, word
            continue
        if not fits:
            return [*found, f"{at}: {str(value)[:60]!r} breaks {word} {asked}"], known
    first = schema.get("prefixItems", [])
    if isinstance(value, list):
        schemas = [*first, *[schema.get("items", {})] * len(value)]
        for place, (each, own) in enumerate(zip(value, schemas, strict=False)):
            found += breaches(each, own, root, f"{at}[{place}]")
    if isinstance(value, dict):
        for key in schema.get("properties", {}).keys() & value.keys():
            found += breaches(value[key], schema["properties"][key], root, f"{at}.{key}")
    return found, known
