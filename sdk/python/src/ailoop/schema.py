"""JSON Schemas of type hints, and values of these types from JSON."""

import dataclasses
import enum
import inspect
import types
import typing
from collections.abc import Callable
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from typing_extensions import NotRequired, Required, is_typeddict

_PLAIN: dict[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
_REQUIRED_MARKS: tuple[Any, ...] = (NotRequired, Required)


class InvalidArguments(ValueError):
    """Arguments that do not match the hints. The text says where, for the model."""


def of_function(function: Callable[..., Any], skip: type | None = None) -> dict[str, Any]:
    """Makes the schema of a function's arguments. A parameter with the type `skip` is not an argument."""
    properties, required = {}, []
    for name, hint, parameter in _parameters(function, skip):
        properties[name] = of_hint(hint)
        if parameter.default is inspect.Parameter.empty:
            required.append(name)
        elif isinstance(parameter.default, (str, int, float, bool)):
            properties[name]["default"] = parameter.default
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def of_hint(hint: Any) -> dict[str, Any]:
    """Makes the schema of a type hint. `Annotated[str, "…"]` gives a value its description."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any or hint is inspect.Parameter.empty:
        return {}
    if origin is Annotated:
        texts = [extra for extra in arguments[1:] if isinstance(extra, str)]
        keywords = [extra for extra in arguments[1:] if isinstance(extra, dict)]
        schema = of_hint(arguments[0])
        for extra in keywords:
            schema |= extra
        return schema | ({"description": " ".join(texts)} if texts else {})
    if hint in _PLAIN:
        return {"type": _PLAIN[hint]}
    if origin in _REQUIRED_MARKS:
        return of_hint(arguments[0])
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin in (Union, types.UnionType):
        return {"anyOf": [of_hint(one) for one in arguments]}
    if hint is list or origin is list:
        return {"type": "array"} | ({"items": of_hint(arguments[0])} if arguments else {})
    if hint is dict or origin is dict:
        return {"type": "object"} | ({"additionalProperties": of_hint(arguments[1])} if arguments else {})
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return {"enum": [member.value for member in hint]}
    if fields := _fields(hint):
        return {
            "type": "object",
            "properties": {name: of_hint(inner) for name, inner, _ in fields},
            "required": [name for name, _, is_required in fields if is_required],
            "additionalProperties": False,
        }
    raise TypeError(
        f"the type {hint!r} has no JSON Schema: use str, int, float, bool, list, dict, Literal, Enum, a dataclass or a TypedDict"
    )


def names_with(function: Callable[..., Any], hint: type) -> list[str]:
    """Names of the parameters with this type."""
    return [name for name, found in typing.get_type_hints(function).items() if found is hint and name != "return"]


def bind(function: Callable[..., Any], arguments: Any, skip: type | None = None) -> dict[str, Any]:
    """Converts JSON arguments to what the function takes, or raises `InvalidArguments`."""
    if not isinstance(arguments, dict):
        raise InvalidArguments("the arguments are not a JSON object")
    values, known = {}, set()
    for name, hint, parameter in _parameters(function, skip):
        known.add(name)
        if name in arguments:
            values[name] = convert(arguments[name], hint, name)
        elif parameter.default is inspect.Parameter.empty:
            raise InvalidArguments(f"`{name}` is missing")
    if unknown := sorted(set(arguments) - known):
        raise InvalidArguments(f"unknown arguments: {', '.join(unknown)}")
    return values


def convert(value: Any, hint: Any, place: str) -> Any:
    """Converts a JSON value to a hint. No type is guessed: `"1"` is no number."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any or hint is inspect.Parameter.empty:
        return value
    if origin is Annotated or origin in _REQUIRED_MARKS:
        return convert(value, arguments[0], place)
    if hint in _PLAIN:
        return _convert_plain(value, hint, place)
    if origin is Literal:
        return _expect(value, value in arguments, f"one of {list(arguments)}", place)
    if origin in (Union, types.UnionType):
        for one in arguments:
            try:
                return convert(value, one, place)
            except InvalidArguments:
                continue
        raise _invalid(value, "of another type", place)
    if hint is list or origin is list:
        _expect(value, isinstance(value, list), "a list", place)
        return [convert(item, arguments[0], f"{place}[{index}]") if arguments else item for index, item in enumerate(value)]
    if hint is dict or origin is dict:
        _expect(value, isinstance(value, dict), "an object", place)
        return {key: convert(item, arguments[1], f"{place}.{key}") if arguments else item for key, item in value.items()}
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        values = [member.value for member in hint]
        return hint(_expect(value, value in values, f"one of {values}", place))
    return _convert_fields(value, hint, place)


def _convert_plain(value: Any, hint: Any, place: str) -> Any:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if hint is float:
        return float(_expect(value, is_number, "a number", place))
    if hint is int:
        # 3.0 is an integer for JSON Schema.
        return int(_expect(value, is_number and value == int(value), "an integer", place))
    return _expect(value, isinstance(value, hint), f"a value of the type {_PLAIN[hint]}", place)


def _convert_fields(value: Any, hint: Any, place: str) -> Any:
    _expect(value, isinstance(value, dict), "an object", place)
    fields = _fields(hint)
    names = {name for name, *_ in fields}
    if unknown := sorted(set(value) - names):
        raise InvalidArguments(f"`{place}` has unknown fields: {', '.join(unknown)}")
    if missing := [name for name, _, is_required in fields if is_required and name not in value]:
        raise InvalidArguments(f"`{place}.{missing[0]}` is missing")
    converted = {name: convert(value[name], inner, f"{place}.{name}") for name, inner, _ in fields if name in value}
    return hint(**converted)


def _fields(hint: Any) -> list[tuple[str, Any, bool]]:
    """(name, hint, whether it is required) of the fields of a dataclass or a TypedDict."""
    if dataclasses.is_dataclass(hint):
        hints = typing.get_type_hints(hint, include_extras=True)
        missing = dataclasses.MISSING
        return [
            (one.name, hints[one.name], one.default is missing and one.default_factory is missing)
            for one in dataclasses.fields(hint)
        ]
    if is_typeddict(hint):
        hints = typing.get_type_hints(hint, include_extras=True)
        return [(name, inner, name in hint.__required_keys__) for name, inner in hints.items()]
    return []


def _parameters(function: Callable[..., Any], skip: type | None) -> list[tuple[str, Any, inspect.Parameter]]:
    hints = typing.get_type_hints(function, include_extras=True)
    found = []
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise TypeError(f"{function.__name__}: the parameter `{name}` must have a name that callers can use")
        hint = hints.get(name, inspect.Parameter.empty)
        if skip is None or hint is not skip:
            found.append((name, hint, parameter))
    return found


def _expect(value: Any, holds: bool, wanted: str, place: str) -> Any:
    if not holds:
        raise _invalid(value, f"not {wanted}", place)
    return value


def _invalid(value: Any, problem: str, place: str) -> InvalidArguments:
    return InvalidArguments(f"`{place}` is {problem}: {str(value)[:80]!r}")
