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
    """The method class of a built-in name, or of a user's module by its dotted name.

    Raises ConfigError, its message beginning with `path`, if there is no such module or it defines no single method.
    """
    if "." not in name and name not in method_names():
        raise ConfigError(f"{path}: {name!r} is unknown; known: {', '.join(method_names())}, or a module's dotted name")
    try:
        module = importlib.import_module(name if "." in name else f"{methods.__name__}.{name}")
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{path}: module {name!r} cannot be imported ({error}); install it or mend the name"
        ) from error
    found = [
        thing
        for thing in vars(module).values()
        if isinstance(thing, type) and issubclass(thing, Method) and thing.__module__ == module.__name__
    ]
    if len(found) != 1:
        raise ConfigError(f"{path}: module {module.__name__} defines {len(found)} methods; it must define one")
    return found[0]
