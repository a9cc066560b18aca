"""What one setting does: runs that are alike in every setting but one, lined up by its values."""

import json
from collections.abc import Callable, Sequence
from typing import Any

from tasks.report_inputs import Result

ASIDE = ("partition", "partition.seed", "seeds", "features", "surface", "evaluate_every", "personal_on_global")
"""Settings that may differ freely: names, chance, and what is looked at."""
KINDS = ("method", "partition.scheme", "pooling")
"""Settings that are no matter of degree: other tables compare them."""


def sweeps(results: Sequence[Result], final: Callable[[Result], Any]) -> list[dict[str, Any]]:
    """A sweep for each setting that some runs differ in alone: its values in order, and a series for each such family.

    `final` makes of a run what its family shows at the run's value. Pooled runs are left out, they are not federated.
    """
    families: dict[str, dict[str, list[tuple[Any, Result]]]] = {}
    for result in results:
        settings = {} if result.pooled else result.record.get("settings", {})
        settings = {key: value for key, value in settings.items() if key not in ASIDE}
        for key in settings.keys() - KINDS:
            rest = json.dumps({k: v for k, v in settings.items() if k != key}, sort_keys=True)
            families.setdefault(key, {}).setdefault(rest, []).append((settings[key], result))
    found = {key: [f for f in each.values() if len({_text(v) for v, _ in f}) > 1] for key, each in families.items()}
    return [_sweep(key, found[key], final) for key in sorted(found) if found[key]]


def _sweep(key: str, families: list[list[tuple[Any, Result]]], final: Callable[[Result], Any]) -> dict[str, Any]:
    values = [value for family in families for value, _ in family]
    numeric = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    order = sorted(set(values)) if numeric else list(dict.fromkeys(map(_text, values)))
    place = {_text(value): at for at, value in enumerate(order)}
    methods = [str(family[0][1].record["method"]) for family in families]
    series = []
    for method, family in zip(methods, families, strict=True):
        lined = sorted(((place[_text(value)], result) for value, result in family), key=lambda pair: pair[0])
        name = method if methods.count(method) == 1 else lined[0][1].name
        points = [{"at": at, "run": result.name, "stat": final(result)} for at, result in lined]
        series.append({"name": name, "points": points})
    return {"setting": key, "numeric": numeric, "values": [_text(value) for value in order], "series": series}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:g}" if isinstance(value, float) else json.dumps(value)
