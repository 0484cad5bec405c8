"""values.schema.json of the chart, from values.yaml and the types of values. `make lab NAME=manifests` writes it."""

import json

import yaml

from .paths import CHART, DEPLOY
from .refused import Refused, refuse_unless

TYPES = DEPLOY / "helm/values.types.yaml"
VALUES = CHART / "values.yaml"
SCHEMA = CHART / "values.schema.json"
# Where a schema has other schemas, and which of its keywords are lists and mappings of them.
SCHEMAS, LISTS, MAPPINGS = {"items", "additionalProperties", "not", "propertyNames"}, {"anyOf", "allOf"}, {"properties"}


def resolve(schema, types):
    """A schema in which names of types are references to their definitions."""
    if isinstance(schema, str):
        if schema not in types:
            raise Refused(TYPES.name, f"names the type {schema}, which is not there", "add it to `types`")
        return {"$ref": f"#/definitions/{schema.replace(' ', '-')}"}
    if not isinstance(schema, dict):
        return schema
    resolved = {}
    for keyword, value in schema.items():
        if keyword in SCHEMAS:
            value = resolve(value, types)
        elif keyword in LISTS:
            value = [resolve(inner, types) for inner in value]
        elif keyword in MAPPINGS:
            value = {name: resolve(inner, types) for name, inner in value.items()}
        resolved[keyword] = value
    return resolved


def schema_of(value, path, table, used):
    """The schema of a value by its path, its key or itself. `used` gets what the table was asked for."""
    name = ".".join(path)
    for place, key in (("paths", name), ("keys", path[-1] if path else "")):
        if key in table[place]:
            used.add((place, key))
            if table[place][key] is None:
                break
            return resolve(table[place][key], table["types"])
    if isinstance(value, bool):
        return resolve("boolean", table["types"])
    if isinstance(value, dict) and value:
        properties = {key: schema_of(inner, [*path, key], table, used) for key, inner in value.items()}
        return {"type": "object", "additionalProperties": False, "properties": properties}
    raise Refused(f"values.yaml, {name}", "has no type", f"add it to {TYPES.relative_to(DEPLOY.parent)}")


def rendered(values=None):
    """The text of the schema."""
    table = yaml.safe_load(TYPES.read_text())
    used = set()
    schema = schema_of(values or yaml.safe_load(VALUES.read_text()), [], table, used)
    for place in ("paths", "keys"):
        for key in table[place]:
            refuse_unless((place, key) in used, f"{TYPES.name}, {key}", "is no value of values.yaml", "remove it")
    # Helm gives every chart this one.
    schema["properties"]["global"] = {"type": "object", "description": "Of a parent chart; not used"}
    definitions = {name.replace(" ", "-"): resolve(inner, table["types"]) for name, inner in table["types"].items()}
    head = {"$schema": "http://json-schema.org/draft-07/schema#", "title": "Values of the chart ailoop"}
    return json.dumps({**head, **schema, "definitions": definitions}, indent=2, ensure_ascii=False) + "\n"


def write():
    SCHEMA.write_text(rendered())


def check():
    remedy = "run `make lab NAME=manifests` and commit what it writes"
    same = SCHEMA.read_text() == rendered()
    refuse_unless(same, SCHEMA.name, f"is not what values.yaml and {TYPES.name} give", remedy)
