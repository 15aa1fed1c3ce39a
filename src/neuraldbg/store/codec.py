"""Facts and events as JSON, and back.

Non-finite floats become the strings "nan", "inf" and "-inf", since JSON has no word for
them. Where a field may hold text as well as numbers, real text of that spelling is
wrapped as `{"text": "nan"}`, so that reading gives back exactly what was written.
Decoding follows the type hints of the dataclasses and trusts nothing.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from functools import cache, partial
from types import NoneType, UnionType
from typing import Any, Final, NoReturn, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import numpy as np

from neuraldbg.core.facts import Scalar
from neuraldbg.store.faults import refuse

T = TypeVar("T")

_NONFINITE: Final = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_WRAP: Final = "text"
_SHOWN: Final = 60  # characters of a bad value in a message


def encode(value: object) -> str:
    """JSON of a fact, an event or a tuple of them. Pure ASCII, no NaN tokens."""
    return json.dumps(_plain(value), allow_nan=False, separators=(",", ":"))


def decode(kind: type[T], text: object, where: str) -> T:
    """Read one fact or event.

    Args:
        kind: Its dataclass.
        text: JSON, as it came from the file.
        where: Its name in messages.

    Raises:
        RunFileError: Not JSON, a key is missing, or a value has the wrong type; names the key.
    """
    return cast(T, _read(kind, parse(text, where), where))


def decode_all(kind: type[T], text: object, where: str) -> tuple[T, ...]:
    """Read a list of facts; as `decode`."""
    return cast("tuple[T, ...]", _read_tuple((kind, ...), parse(text, where), where))


def parse(text: object, where: str) -> object:
    """JSON text as Python values; NaN and Infinity tokens are refused.

    Raises:
        RunFileError: Not JSON.
    """
    if not isinstance(text, str):
        _unlike(where, "JSON text", text)
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        refuse(where, f"not valid JSON ({error})")


def storable(text: str) -> str:
    """Text that SQLite takes: lone surrogates (as in undecodable file names) are escaped."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _no_constant(token: str) -> object:
    message = f"{token} is not JSON"
    raise ValueError(message)


def _plain(value: object) -> object:
    if isinstance(value, np.generic):
        return _plain(float(value) if isinstance(value, np.floating) else value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return repr(float(value))
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, Mapping):
        return {str(key): _scalar(item) for key, item in value.items()}
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    return str(value)  # a setting of some odd type, e.g. a dtype: better named than lost


def _scalar(value: object) -> object:
    if isinstance(value, str) and value in _NONFINITE:
        return {_WRAP: value}
    plain = _plain(value)
    return str(value) if isinstance(plain, (list, dict)) else plain


@cache
def _hints(kind: type) -> dict[str, tuple[Field[object], object]]:
    hints = get_type_hints(kind)
    return {field.name: (field, hints[field.name]) for field in fields(kind)}


def _read(hint: object, data: object, where: str) -> object:
    return _reader(hint)(data, where)


@cache
def _reader(hint: object) -> Callable[[object, str], object]:
    """What reads values of a type; found once, since a large model has 100,000 of them."""
    if hint == Scalar:
        return _read_scalar
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        (inner,) = (arg for arg in args if arg is not NoneType)
        read = _reader(inner)
        return lambda data, where: None if data is None else read(data, where)
    if origin is tuple:
        return partial(_read_tuple, args)
    if origin is Mapping:
        return _read_mapping
    return partial(_read_dataclass if is_dataclass(hint) else _read_plain, cast(type, hint))


def _read_mapping(data: object, where: str) -> dict[str, object]:
    return {key: _read_scalar(item, f"{where}.{key}") for key, item in _items(data, where)}


def _read_dataclass(kind: type, data: object, where: str) -> object:
    given = dict(_items(data, where))
    values = {}
    for name, (field, hint) in _hints(kind).items():
        if name in given:
            values[name] = _read(hint, given[name], f"{where}.{name}")
        elif field.default is MISSING and field.default_factory is MISSING:
            refuse(f"{where}.{name}", "missing")
    return kind(**values)


def _items(data: object, where: str) -> list[tuple[str, object]]:
    if not isinstance(data, dict):
        _unlike(where, "an object", data)
    return list(data.items())


def _read_tuple(args: tuple[object, ...], data: object, where: str) -> tuple[object, ...]:
    if not isinstance(data, list):
        _unlike(where, "a list", data)
    if args[-1] is Ellipsis:
        args = (args[0],) * len(data)
    if len(args) != len(data):
        _unlike(where, f"a list of {len(args)}", data)
    return tuple(_read(args[i], item, f"{where}[{i}]") for i, item in enumerate(data))


def _read_scalar(data: object, where: str) -> object:
    if isinstance(data, dict) and data.keys() == {_WRAP} and isinstance(data[_WRAP], str):
        return data[_WRAP]
    if data is not None and not isinstance(data, (str, bool, int, float)):
        _unlike(where, "text, a number, a flag or null", data)
    return _NONFINITE.get(data, data) if isinstance(data, str) else data


def _read_plain(kind: type[Any], data: object, where: str) -> object:
    if issubclass(kind, Enum):
        if data in [member.value for member in kind]:
            return kind(data)
        _unlike(where, f"one of {', '.join(str(m.value) for m in kind)}", data)
    if kind is float:
        return _read_float(data, where)
    if type(data) is not kind:  # exact: True is no number here
        _unlike(where, _NAMES.get(kind, kind.__name__), data)
    return data


def _read_float(data: object, where: str) -> float:
    if isinstance(data, str) and data in _NONFINITE:
        return _NONFINITE[data]
    number = isinstance(data, (int, float)) and not isinstance(data, bool)
    if not number or abs(cast(float, data)) > sys.float_info.max:
        _unlike(where, "a number", data)
    return float(cast(float, data))


_NAMES: Final = {int: "a whole number", str: "text", bool: "true or false"}


def _unlike(where: str, wanted: str, found: object) -> NoReturn:
    refuse(where, f"expected {wanted}, found {repr(found)[:_SHOWN]}")
