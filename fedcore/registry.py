"""Methods by name: a file of fedcore/methods is a method, and its name is the name everywhere."""

import importlib
import pkgutil
from typing import Any

from fedcore import methods
from fedcore.config import ConfigError
from fedcore.method import Method


def method_names() -> list[str]:
    """Names of all built-in methods, sorted."""
    return sorted(module.name for module in pkgutil.iter_modules(methods.__path__))


def method(name: str, path: str = "method") -> type[Method[Any, Any]]:
    """The method class of a name. Raises ConfigError, its message beginning with `path`, if there is no such method."""
    if name not in method_names():
        raise ConfigError(f"{path}: {name!r} is unknown; known: {', '.join(method_names())}")
    module = importlib.import_module(f"{methods.__name__}.{name}")
    found = [
        thing
        for thing in vars(module).values()
        if isinstance(thing, type) and issubclass(thing, Method) and thing.__module__ == module.__name__
    ]
    if len(found) != 1:
        raise ConfigError(f"{path}: {module.__file__} defines {len(found)} methods; it must define one")
    return found[0]
