"""Draws the packages of consilience and which of them import which, from the source."""

from __future__ import annotations

import ast
import tomllib
from collections import Counter
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

ROOT = Path(__file__).resolve().parent.parent.parent
SOURCE = ROOT / "src" / "consilience"
INK, PAPER, LINE, BOX = "#22313f", "#fbfaf7", "#a3421f", "#e9e3d8"


def packages() -> list[str]:
    """The packages in the order in which data walks through them, from the contract that `make lint` checks."""
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    names: list[str] = []
    for layer in reversed(contract["contracts"][0]["layers"]):
        for module in layer.split(" : "):
            name = module.removeprefix("consilience.")
            name = (
                "methods"
                if name in ("methods.registration", "methods.method", "methods.spec", "methods.losses")
                else name
            )
            if name not in names and (SOURCE / name.replace(".", "/") / "__init__.py").is_file():
                names.append(name)
    return names


def package_of(module: str, names: list[str]) -> str | None:
    """The package that a module belongs to: the longest name that it starts with."""
    inside = module.removeprefix("consilience.")
    fitting = [name for name in names if f"{inside}.".startswith(f"{name}.")]
    return max(fitting, key=len, default=None)


def graph() -> tuple[Counter[str], Counter[tuple[str, str]]]:
    """Lines of code of each package, and for each pair how many files of the first import the second."""
    names = packages()
    lines: Counter[str] = Counter()
    imports: Counter[tuple[str, str]] = Counter()
    for path in sorted(SOURCE.rglob("*.py")):
        module = ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts)
        package = package_of(module, names)
        if package is None:
            continue
        text = path.read_text(encoding="utf-8")
        lines[package] += text.count("\n")
        targets = {package_of(found, names) for found in imported(ast.parse(text)) if found.startswith("consilience.")}
        imports.update((package, target) for target in targets - {package, None})
    return lines, imports


def imported(tree: ast.Module) -> set[str]:
    """The modules that a file imports, those for type checking alone left out."""
    skipped = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    found = set()
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found


def draw(out: Path) -> None:
    """Draw the map: a box for each package, and an arc from each one to those that it imports."""
    names, (lines, imports) = packages(), graph()
    figure = Figure(figsize=(6.3, 0.52 * len(names) + 0.6), facecolor=PAPER)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0.4, 6.3), ylim=(-len(names) + 0.2, 1.1))
    axes.axis("off")
    place = {name: -row for row, name in enumerate(names)}
    widest = max(imports.values())
    for (source, target), count in sorted(imports.items(), key=lambda one: one[1]):
        side = 1 if place[source] < place[target] else -1  # imports run upwards; another is on the left
        x = 3.9 if side > 0 else 0.75
        ends = (x, place[source] - 0.12), (x, place[target] + 0.12)
        reach = 0.62 - 0.012 * abs(place[source] - place[target])
        axes.add_patch(
            FancyArrowPatch(
                *ends,
                connectionstyle=f"arc3,rad={reach if side > 0 else -reach}",
                arrowstyle="-|>,head_length=4,head_width=2",
                lw=0.4 + 2.6 * count / widest,
                color=LINE,
                alpha=0.25 + 0.6 * count / widest,
                shrinkA=0,
                shrinkB=0,
            )
        )
    for name, y in place.items():
        box = FancyBboxPatch(
            (0.8, y - 0.3), 3.05, 0.6, boxstyle="round,pad=0.02,rounding_size=0.1", fc=BOX, ec=INK, lw=0.8
        )
        axes.add_patch(box)
        axes.text(0.95, y, name, va="center", color=INK, family="monospace", size=11)
        axes.text(3.75, y, f"{lines[name]:,} lines".replace(",", " "), va="center", ha="right", color=INK, size=8)
    axes.text(0.8, 0.75, "data starts here", color=INK, size=9, style="italic")
    out.parent.mkdir(exist_ok=True)
    figure.savefig(out, facecolor=PAPER, metadata={"Date": None})
