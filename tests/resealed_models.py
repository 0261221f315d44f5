"""Saved models as a stranger would change them: the description is edited, and every checksum computed again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from consilience.training.model_folder import DESCRIPTION, EXPERTS, WEIGHTS, _seal


def reseal(folder: Path, change: Callable[[dict[str, Any]], Any] | None = None) -> Path:
    """Change the description of a saved model in place, and seal it again."""
    file = folder / DESCRIPTION
    described = json.loads(file.read_text(encoding="utf-8"))
    if change is not None:
        change(described)
    described["sha256"] = hashlib.sha256((folder / WEIGHTS).read_bytes()).hexdigest()
    if (folder / EXPERTS).exists():
        described["experts_sha256"] = hashlib.sha256((folder / EXPERTS).read_bytes()).hexdigest()
    described["checksum"] = _seal(described)
    file.write_text(json.dumps(described), encoding="utf-8")
    return folder


def plant_code(folder: Path, sentinel: Path) -> None:
    """Give a pretrained model's folder code of its own, which would write a file."""
    code = f"open({str(sentinel)!r}, 'w').close()\n"
    (folder / "evil.py").write_text(code + "class EvilConfig: pass\nclass EvilModel: pass\n", encoding="utf-8")
    file = folder / "config.json"
    config = json.loads(file.read_text(encoding="utf-8"))
    config["model_type"] = "evil"
    config["auto_map"] = {"AutoConfig": "evil.EvilConfig", "AutoModel": "evil.EvilModel"}
    file.write_text(json.dumps(config), encoding="utf-8")
    file = folder / "tokenizer_config.json"
    if file.exists():
        config = json.loads(file.read_text(encoding="utf-8"))
        config["auto_map"] = {"AutoTokenizer": ["evil.EvilModel", "evil.EvilModel"]}
        file.write_text(json.dumps(config), encoding="utf-8")
