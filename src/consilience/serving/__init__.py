"""Serving: saved models behind HTTP, in the Open Inference Protocol and in plain JSON."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from consilience.serving.app import create_app as create_app
    from consilience.serving.model_store import ModelStore as ModelStore
    from consilience.serving.serving_settings import ServingSettings as ServingSettings

_PUBLIC = {"ModelStore": "model_store", "ServingSettings": "serving_settings", "create_app": "app"}

__all__ = list(_PUBLIC)


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(importlib.import_module(f"{__name__}.{_PUBLIC[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
