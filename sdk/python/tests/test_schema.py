"""Schemas of type hints, and arguments that match them or do not."""

import dataclasses
import enum
import unittest
from typing import Annotated, Any, Literal, TypedDict

from ailoop import ClientTool, client_tool, schema
from ailoop.client_tool import to_client_tool


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Place:
    city: str
    zip: int = 0


class Options(TypedDict, total=False):
    deep: bool


def survey(
    place: Place, colour: Colour, unit: Literal["m", "km"], names: list[str], limit: Annotated[int, "At most."] = 3,
    options: Options | None = None,
) -> Any:
    """Looks around."""
    return [place, colour, unit, names, limit, options]


class Schemas(unittest.TestCase):
    def test_hints_make_the_schema(self) -> None:
        place = {
            "type": "object", "properties": {"city": {"type": "string"}, "zip": {"type": "integer"}},
            "required": ["city"], "additionalProperties": False,
        }
        options = {
            "type": "object", "properties": {"deep": {"type": "boolean"}}, "required": [], "additionalProperties": False,
        }
        self.assertEqual(
            schema.of_function(survey),
            {
                "type": "object",
                "properties": {
                    "place": place,
                    "colour": {"enum": ["red", "blue"]},
                    "unit": {"enum": ["m", "km"]},
                    "names": {"type": "array", "items": {"type": "string"}},
                    "limit": {"type": "integer", "description": "At most.", "default": 3},
                    "options": {"anyOf": [options, {"type": "null"}]},
                },
                "required": ["place", "colour", "unit", "names"],
                "additionalProperties": False,
            },
        )

    def test_arguments_become_values_of_the_hints(self) -> None:
        given = {"place": {"city": "Bonn"}, "colour": "red", "unit": "km", "names": ["a"], "options": {"deep": True}}
        values = schema.bind(survey, given)
        self.assertEqual(survey(**values), [Place("Bonn"), Colour.RED, "km", ["a"], 3, {"deep": True}])

    def test_arguments_that_do_not_match_name_the_place(self) -> None:
        good = {"place": {"city": "Bonn"}, "colour": "red", "unit": "km", "names": ["a"]}
        for change, words in [
            ({"place": {"city": 3}}, "`place.city` is not a value of the type string"),
            ({"place": {}}, "`place.city` is missing"),
            ({"place": {"city": "B", "x": 1}}, "`place` has unknown fields: x"),
            ({"colour": "green"}, "`colour` is not one of"),
            ({"unit": "mi"}, "`unit` is not one of"),
            ({"names": ["a", 1]}, "`names[1]`"),
            ({"limit": True}, "`limit` is not an integer"),
            ({"limit": 1.5}, "`limit` is not an integer"),
            ({"other": 1}, "unknown arguments: other"),
        ]:
            with self.subTest(words), self.assertRaises(schema.InvalidArguments) as raised:
                schema.bind(survey, good | change)
            self.assertIn(words, str(raised.exception))
        with self.assertRaises(schema.InvalidArguments):
            schema.bind(survey, [])

    def test_hint_without_schema_is_a_type_error(self) -> None:
        def bad(value: complex) -> None: ...

        def open_ended(*values: str) -> None: ...

        for function in (bad, open_ended):
            with self.assertRaises(TypeError):
                schema.of_function(function)

    def test_decorator_keeps_the_function_and_describes_it(self) -> None:
        marked = client_tool(effect="pure", timeout=1.5, max_output=100)(survey)
        tool: ClientTool = to_client_tool(marked)
        entry = tool.describe()
        self.assertEqual((entry["name"], entry["description"], entry["effect"]), ("survey", "Looks around.", "pure"))
        self.assertEqual((entry["timeout_ms"], entry["max_output"]), (1500, 100))


if __name__ == "__main__":
    unittest.main()
