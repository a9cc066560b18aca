"""From plain mappings (YAML) to frozen dataclasses, strictly: a dataclass's fields are its schema."""

import math
import types
import typing
from collections.abc import Collection, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass, replace
from typing import Any, Literal, TypeVar

T = TypeVar("T")

LARGEST = 2**63 - 1  # what tensors hold


class ConfigError(ValueError):
    """A setting that cannot be used; the message starts with its path in the study."""


def build(
    cls: type[T],
    values: object,
    path: str,
    *,
    base: T | None = None,
    exclude: Collection[str] = (),
    also: Collection[str] = (),
) -> T:
    """Build the dataclass `cls` from the mapping `values`.

    `base` gives the defaults instead of the class; `exclude` are fields that no setting may name, `also` further names
    that are known at this place but not for this class, for the message. A field whose default is itself a dataclass is
    overridden field by field. Raises ConfigError, its message beginning with `path` and the field, for an unknown,
    missing or ill-typed field, and for whatever the dataclass's own `__post_init__` refuses.
    """
    if not isinstance(values, Mapping):
        raise ConfigError(f"{path}: expected a mapping of settings, got {values!r}")
    known = {f.name: f for f in fields(cls) if f.init and f.name not in exclude}  # type: ignore[arg-type]
    for key in values:
        if key not in known:
            raise ConfigError(f"{path}.{key}: unknown; known: {', '.join([*known, *also])}")
    hints = typing.get_type_hints(cls)
    found: dict[str, Any] = {}
    for name, field in known.items():
        if name in values:
            found[name] = convert(hints[name], values[name], f"{path}.{name}", _default(field, base))
        elif base is None and field.default is MISSING and field.default_factory is MISSING:
            raise ConfigError(f"{path}.{name}: missing; it has no default")
    try:
        return cls(**found) if base is None else replace(base, **found)  # type: ignore[type-var]
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(f"{path}.{error}") from error


def _default(field: Field[Any], base: object) -> object:
    if base is not None:
        return getattr(base, field.name)
    if field.default_factory is not MISSING:
        return field.default_factory()
    return None if field.default is MISSING else field.default


def convert(hint: Any, value: object, path: str, default: object = None) -> Any:
    """`value` as the annotated type `hint`; an int is a good float, a list a good tuple, nothing else is bent.

    Where the hint is a dataclass, `default` is what the settings in `value` start from.
    """
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any or hint is object:
        return value
    if origin in (typing.Union, types.UnionType):
        return _union(args, value, path)
    if origin is Literal:
        if not any(type(value) is type(arg) and value == arg for arg in args):
            raise ConfigError(f"{path}: {value!r} is not one of {', '.join(map(str, args))}")
        return value
    if is_dataclass(hint):
        return build(typing.cast(type[Any], hint), value, path, base=default)
    if origin is tuple or origin is list or hint is tuple:
        return _sequence(args, value, path)
    if origin in (dict, Mapping) or hint is dict:
        return _mapping(args, value, path)
    return _scalar(hint, value, path)


def _union(args: tuple[Any, ...], value: object, path: str) -> Any:
    if value is None and type(None) in args:
        return None
    reasons = []
    for arg in args:
        if arg is not type(None):
            try:
                return convert(arg, value, path)
            except ConfigError as error:
                reasons.append(str(error).removeprefix(f"{path}: "))
    raise ConfigError(f"{path}: {', and '.join(reasons)}")


def _sequence(args: tuple[Any, ...], value: object, path: str) -> tuple[Any, ...]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise ConfigError(f"{path}: expected a list, got {value!r}")
    inner = args[0] if args else Any
    return tuple(convert(inner, item, f"{path}[{i}]") for i, item in enumerate(value))


def _mapping(args: tuple[Any, ...], value: object, path: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{path}: expected a mapping, got {value!r}")
    inner = args[1] if args else Any
    return {str(key): convert(inner, item, f"{path}.{key}") for key, item in value.items()}


def _scalar(hint: Any, value: object, path: str) -> Any:
    if hint not in (int, float):
        if isinstance(value, hint):
            return value
    elif isinstance(value, int if hint is int else (int, float)) and not isinstance(value, bool):
        return _number(hint, value, path)
    raise ConfigError(f"{path}: expected {hint.__name__}, got {value!r}{_remedy(value)}")


def _number(hint: type, value: Any, path: str) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{path}: {value} is not a finite number")
    if isinstance(value, int) and abs(value) > LARGEST:
        raise ConfigError(f"{path}: a number of {len(str(value))} digits; the largest is {LARGEST}")
    return hint(value)


def _remedy(value: object) -> str:
    """YAML takes 1e-3 for text."""
    if isinstance(value, str):
        try:
            return f"; without quotes it is {float(value)!r}, in YAML 1.0e-3 needs the point"
        except ValueError:
            pass
    return ""
