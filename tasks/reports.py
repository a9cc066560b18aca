"""The report: one page that answers the study's question, and its tables and figures as files."""

import json
import math
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from prefect import task

from tasks import layout, publish, report_figures, report_inputs, report_numbers, report_tables, study
from tasks.report_numbers import LABELS, Chapter, Page, Stat


@task(task_run_name="report")
def report() -> Path:
    """Write report/ from the results of the runs of params.yaml that there are.

    Raises ConfigError for a study that is not sound, FileNotFoundError if none of its runs has a result. Nothing is
    written then. The same inputs give the same bytes.
    """
    whole = study.load()
    inputs = report_inputs.read(whole.study, whole.runs, whole.encoders)
    with publish.replacing(layout.report()) as folder:
        write(report_numbers.page(inputs), folder)
    return layout.report()


def write(page: Page, folder: Path) -> None:
    """Page, tables, figures and metrics.json into `folder`, which exists."""
    (folder / "index.html").write_text(render(page), encoding="utf-8")
    (folder / "metrics.json").write_text(json.dumps(report_tables.headline(page), indent=2) + "\n")
    (folder / "tables").mkdir()
    for name, text in report_tables.tables(page).items():
        (folder / "tables" / name).write_text(text, encoding="utf-8")
    (folder / "figures").mkdir()
    for stem, figure in report_figures.draw(page).items():
        path = folder / "figures" / f"{re.sub(r'[^A-Za-z0-9_-]', '_', stem)}.png"
        figure.savefig(path, dpi=200, metadata={"Software": None})


def render(page: Page) -> str:
    """The page as one HTML document that needs nothing but itself."""
    environment = Environment(
        loader=PackageLoader("tasks", "templates"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters |= {
        "percent": report_tables.percent,
        "size": report_tables.size,
        "seconds": report_tables.seconds,
        "number": report_tables.number,
        "pretty": lambda facts: json.dumps(facts, indent=2, ensure_ascii=False),
        "finite": lambda value: value is not None and math.isfinite(value),
    }
    return environment.get_template("report.html").render(
        page=page,
        columns=report_tables.COLUMNS,
        labels=LABELS,
        scales=[_scale(chapter) for chapter in page.chapters],
        leaders={chapter.name: _leaders(chapter) for chapter in page.chapters},
        data=embedded(
            {
                "chapters": [_drawn(chapter) for chapter in page.chapters],
                "encoders": page.encoders,
                "sweeps": page.sweeps,
            }
        ),
        style=_source(environment, "report.css"),
        script=_source(environment, "report.js"),
    )


def _source(environment: Environment, name: str) -> Markup:
    assert environment.loader is not None
    return Markup(environment.loader.get_source(environment, name)[0])  # our own file, not a name from a study


def _drawn(chapter: Chapter) -> dict[str, Any]:
    """What the script draws of a chapter."""
    told = asdict(chapter)
    return {key: told[key] for key in ("curves", "spread", "clusters", "holdings", "maps", "surfaces")}


def _scale(chapter: Chapter) -> dict[str, float]:
    """From where to where the final accuracies of a chapter reach, for the little plots in its table."""
    low, high = [], []
    for row in chapter.rows:
        stat, told = row.stat(chapter.score), [value for value in row.finals.values() if math.isfinite(value)]
        spread = stat.std if math.isfinite(stat.std) else 0
        low += [*told, stat.mean - spread] if told else []
        high += [*told, stat.mean + spread] if told else []
    if not low:
        return {"low": 0.0, "high": 1.0}
    room = (max(high) - min(low)) * 0.06 or 0.02
    return {"low": max(0.0, min(low) - room), "high": min(1.0, max(high) + room)}


def _leaders(chapter: Chapter) -> dict[str, float]:
    """The best mean of each column among the federated runs; no key where there are not two to compare."""
    told = {key: [row.stat(key).mean for row in chapter.rows if not row.pooled] for key in report_tables.COLUMNS}
    finite = {key: [value for value in values if math.isfinite(value)] for key, values in told.items()}
    return {key: max(values) for key, values in finite.items() if len(values) > 1}


def embedded(data: Any) -> Markup:
    """JSON that may stand inside a script element; what is not a number is null, numbers have six digits."""
    text = json.dumps(_rounded(data), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Markup(text)


def _rounded(data: Any) -> Any:
    if isinstance(data, Stat):
        data = data._asdict()
    if isinstance(data, dict):
        return {str(key): _rounded(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_rounded(value) for value in data]
    if isinstance(data, float):
        return float(f"{data:.6g}") if math.isfinite(data) else None
    return data
