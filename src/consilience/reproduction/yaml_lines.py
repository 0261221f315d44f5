"""Read a YAML file into plain values and remember the line of every key and item."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from consilience.core.errors import InputError

Place = tuple[str | int, ...]
_MOST_VALUES = 100_000
_MOST_BYTES = 2**21
_DEEPEST = 20
_KINDS = ("str", "int", "float", "bool", "null", "seq", "map", "timestamp", "merge", "value")
_TAGS = {f"tag:yaml.org,2002:{kind}" for kind in _KINDS}
# Numbers and words of YAML 1.2: 1e-3 is a number and `no` a string, unlike in YAML 1.1, which PyYAML follows.
_WORDS = {"true": True, "false": False, "null": None, "~": None, "": None}


@contextmanager
def naming(where: str) -> Iterator[None]:
    """Put a file and a line before the message of an `InputError`."""
    try:
        yield
    except InputError as error:
        raise type(error)(f"{where}: {error}") from None


@dataclass
class YamlFile:
    """A file's content, and the line of each value by its place: `("parts", "digits", "seeds")`."""

    path: Path
    content: Any = None
    lines: dict[Place, int] = field(default_factory=dict)

    def where(self, place: Place) -> str:
        """Return the file and the line of a place, or of the nearest one around it."""
        while place and place not in self.lines:
            place = place[:-1]
        return f"{self.path}, line {self.lines.get(place, 1)}"

    def naming(self, *place: str | int) -> AbstractContextManager[None]:
        """Put the file and the line of a place before the message of an `InputError`."""
        return naming(self.where(place))

    def __getitem__(self, key: str) -> Any:
        return self.content[key]

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of a key of the outermost mapping."""
        return self.content.get(key, default)


def read_yaml(path: str | Path) -> YamlFile:
    """Read a YAML file of mappings, lists, strings, numbers, true, false and null.

    Args:
        path: The file. Nothing in it is executed, and tags (`!name`) are refused.

    Returns:
        The content with its lines. The outermost value is a mapping.

    Raises:
        InputError: If the file cannot be read, is not YAML or not a mapping, or has a key twice. The message names
            the line.
    """
    import yaml

    file = YamlFile(Path(path))
    try:
        if file.path.stat().st_size > _MOST_BYTES:
            raise InputError(f"{file.path} has more than {_MOST_BYTES} bytes: this is not a file of settings")
        node = yaml.compose(file.path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except InputError:
        raise
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark is not None else ""
        raise InputError(
            f"{file.path}{line}: this is not YAML: {getattr(error, 'problem', None) or ' '.join(str(error).split())}"
        ) from None
    except (OSError, ValueError, RecursionError) as error:  # UnicodeDecodeError is a ValueError
        raise InputError(f"{file.path} cannot be read: {error}") from None
    if not isinstance(node, yaml.MappingNode):
        raise InputError(f"{file.path}: the file must be a mapping of keys to values")
    file.content = _value(file, node, ())
    return file


def _value(file: YamlFile, node: Any, place: Place) -> Any:
    """The plain value of a node; aliases are copied, so their number is limited."""
    import yaml

    file.lines.setdefault(place, node.start_mark.line + 1)
    if len(place) > _DEEPEST or len(file.lines) > _MOST_VALUES:
        raise InputError(f"{file.where(place)}: too many values or too deeply nested")
    if node.tag not in _TAGS:
        raise InputError(f"{file.where(place)}: the tag {node.tag} is not allowed")
    if isinstance(node, yaml.ScalarNode):
        return _scalar(node)
    if isinstance(node, yaml.SequenceNode):
        return [_value(file, item, (*place, index)) for index, item in enumerate(node.value)]
    mapping: dict[str, Any] = {}
    for key_node, item in node.value:
        key, line = key_node.value, key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode):
            raise InputError(f"{file.path}, line {line}: a key must be a word")
        if key in mapping:
            raise InputError(f"{file.path}, line {line}: the key {key!r} is given twice")
        file.lines[(*place, key)] = line
        mapping[key] = _value(file, item, (*place, key))
    return mapping


def _scalar(node: Any) -> Any:
    text: str = node.value
    if node.style is not None:  # quoted, or a block
        return text
    if text in _WORDS:
        return _WORDS[text]
    for number in (int, float):
        try:
            return number(text) if text[-1].isdigit() and text[0] in "-+.0123456789" and "_" not in text else text
        except ValueError:
            continue
    return text
