"""What `consilience reproduce` runs: protocol files and scripts, by path or by their name in a folder `papers`."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import consilience
from consilience.core.errors import InputError, unknown_name
from consilience.reproduction.protocol import Protocol, read_protocol
from consilience.reproduction.run_protocol import run_protocol
from consilience.reproduction.study import Reproduction, load_script
from consilience.reproduction.yaml_lines import read_yaml

_SUFFIXES = (".yaml", ".py")


def papers_folders() -> list[Path]:
    """Return the folders in which names are looked up: `papers` here, and in the clone that the package runs from."""
    source = Path(consilience.__file__).parent.parent
    clone = [source.parent / "papers"] if source.name == "src" else []
    folders = {folder.resolve(): folder for folder in (*clone, Path("papers")) if folder.is_dir()}
    return list(folders.values())[::-1]


def list_papers() -> dict[str, str]:
    """Return the title of each protocol and script by its name. Scripts are not executed."""
    paths = {path.stem: path for path in reversed(_files())}
    titles, served = {}, set()
    for name, path in sorted(paths.items()):
        if path.suffix == ".py":
            titles[name] = _title_of_script(path)
            continue
        try:
            content = read_yaml(path).content
            titles[name] = str(content.get("title", ""))
            served.add(Path(str(content.get("script", ""))).stem)
        except InputError as error:
            titles[name] = f"cannot be read: {error}"
    # A script that protocols name is listed under their names.
    return {name: title for name, title in titles.items() if not (name in served and paths[name].suffix == ".py")}


def find_paper(name: str) -> Path:
    """Return the file of a protocol or script.

    Args:
        name: A path to a `.yaml` or `.py` file, or the name of one in a folder `papers`, without its ending.

    Raises:
        InputError: If the file does not exist, or if there is no folder to look a name up.
        UnknownNameError: If the folders have no such name; the nearest is suggested.
    """
    if Path(name).suffix in _SUFFIXES or len(Path(name).parts) > 1:
        path = Path(name)
        if path.suffix not in _SUFFIXES:
            raise InputError(f"reproduce: {name} is not a protocol file (.yaml) or a script (.py)")
        if not path.is_file():
            raise InputError(f"reproduce: there is no file {name}")
        return path
    found = [path for path in _files() if path.stem == name]
    if found:
        return found[0]
    if not papers_folders():
        raise InputError(
            f"reproduce: there is no folder 'papers' in which to look {name!r} up. The installed package has none: run "
            "it in a clone of the repository, or give the path of a protocol file, which docs/protocols.md describes"
        )
    raise unknown_name("protocol", name, list_papers())


def run_paper(path: str | Path, *, side_by_side: bool = False, **options: Any) -> Reproduction:
    """Run a protocol file or a script.

    Args:
        path: The file.
        side_by_side: Train the seeds of a method as one batched model; for protocols of comparisons only.
        options: `quick`, `out`, `jobs`, `cluster`, `verbose` and `command`.

    Raises:
        InputError: If the protocol is not valid, or the script has no function `run`.
    """
    path = Path(path)
    protocol = Protocol(path, "", script=path) if path.suffix == ".py" else read_protocol(path)
    if protocol.script is None:
        return run_protocol(protocol, side_by_side=side_by_side, **options)
    if side_by_side:
        raise InputError(f"--side-by-side is for comparisons of methods: {path.stem} is a script of its own")
    settings = {} if protocol.script == path else {"name": path.stem, **protocol.settings}
    run = getattr(load_script(protocol.script), "run", None)
    if run is None:
        raise InputError(f"reproduce: {path} has no function run(*, quick, out, jobs, cluster, verbose, command)")
    return run(**settings, **options)


def _files() -> list[Path]:
    """Protocols and scripts, those of the current directory first."""
    return [path for folder in papers_folders() for suffix in _SUFFIXES for path in sorted(folder.glob(f"*{suffix}"))]


def _title_of_script(path: Path) -> str:
    return str(constant_of_script(path, "TITLE") or "")


def constant_of_script(path: Path, constant: str) -> Any:
    """Return the value of a constant at the top level of a script, which is not executed; None if it has none."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        names = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        if any(isinstance(name, ast.Name) and name.id == constant for name in names):
            return ast.literal_eval(node.value)  # type: ignore[attr-defined]
    return None
