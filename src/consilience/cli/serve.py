"""Answer requests over HTTP with saved models: labels, probabilities, trust and sets, also with modalities missing."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from consilience.cli import options
from consilience.core.errors import InputError
from consilience.core.settings import NonNegativeInt, PositiveFloat, Share, settings_of

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser, Namespace

USAGE = "MODEL [MODEL ...] [options]"
EXAMPLES = """  consilience serve model
  consilience serve runs/machines/best --port 9000 --monitor validation.csv
  consilience serve day=models/day night=models/night --reload 10
  consilience serve model --host 0.0.0.0 --api-key-file keys.txt"""


def add_arguments(parser: ArgumentParser) -> None:
    """Add models, address, keys, monitors and limits."""
    from consilience.serving.serving_settings import ServingSettings

    help = "folder written by train or compare, or NAME=FOLDER; clients ask for it by the name"
    parser.add_argument("models", nargs="+", type=str, help=help)
    help = "address to listen at; other machines can reach the server only at an address of theirs, such as 0.0.0.0"
    parser.add_argument("--host", type=str, metavar="ADDRESS", default="127.0.0.1", help=help)
    options.add_option(parser, "port", NonNegativeInt, "port to listen at; 0: any that is free", default=8080)
    help = "file with a line NAME KEY [EXPIRES] for each client; requests must then carry a key"
    parser.add_argument("--api-key-file", type=str, metavar="FILE", help=help)
    help = "names that clients may call the server by, beside its address; for a server behind a proxy"
    parser.add_argument("--host-name", nargs="+", type=str, metavar="NAME", help=help)
    help = "watch the rows: file of rows of the time when the model worked, NAME=FILE if there are several models; "
    help += "/metrics shows what is watched, and the log has the alarms"
    parser.add_argument("--monitor", nargs="+", type=str, metavar="FILE", help=help)
    help = "share of unchanged streams of rows that may have any alarm"
    options.add_option(parser, "false_alarms", Share, help, default=0.01)
    help = "look at the folders every so many seconds, and load a model that was replaced; SIGHUP does so at once"
    options.add_option(parser, "reload", PositiveFloat, help, metavar="SECONDS")
    options.add_passed_encoders(parser)
    group = parser.add_argument_group("limits")
    for name, setting in settings_of(ServingSettings).items():
        options.add_option(group, name, setting.annotation, setting.help, default=setting.default)


def run(chosen: Namespace, command: list[str]) -> None:
    """Load the models, and serve until a signal."""
    from consilience.serving.request_log import written_apart

    with written_apart():
        _serve(chosen)


def _serve(chosen: Namespace) -> None:
    from consilience.serving.api_keys import read_keys
    from consilience.serving.app import create_app
    from consilience.serving.listener import BACKLOG, LOOPBACK, bind, is_loopback, listen
    from consilience.serving.model_store import ModelStore, named_folders
    from consilience.serving.request_log import log
    from consilience.serving.serving_settings import ServingSettings

    settings = ServingSettings(**{name: chosen[name] for name in settings_of(ServingSettings)})
    if chosen.port > 65535:
        raise InputError(f"serve: --port must be at most 65535, got {chosen.port}")
    folders = named_folders(chosen.models)
    encoders = options.encoders(chosen)
    if encoders and len(folders) > 1:
        raise InputError("serve: --encoder is for one model; serve a model that needs encoders alone")
    references = _references(chosen.monitor or [], folders)
    keys = [() if chosen.api_key_file is None else read_keys(chosen.api_key_file)]
    bound = bind(chosen.host, chosen.port)
    try:
        store = ModelStore(
            folders, settings, references=references, false_alarms=chosen.false_alarms, encoders=encoders
        )
        hosts = None
        if is_loopback(chosen.host) and not keys[0]:
            hosts = {*LOOPBACK, chosen.host, *(chosen.host_name or [])}
        elif not keys[0]:
            _warn(f"every machine that reaches {chosen.host} can ask this server: give --api-key-file, or firewall it")
        app = create_app(store, lambda: keys[0], hosts)
    except BaseException:
        bound.close()
        raise

    def reload(only_changed: bool = False) -> None:
        if chosen.api_key_file is not None and not only_changed:
            try:
                keys[0] = read_keys(chosen.api_key_file)
                log("keys", count=len(keys[0]))
            except InputError as error:
                log("keys", "error", result="kept", reason=str(error))
        store.reload(only_changed=only_changed)

    ended = threading.Event()
    if chosen.reload is not None:
        threading.Thread(target=_look, args=(ended, chosen.reload, reload), daemon=True).start()
    for name in store.names:
        model = store.batcher(name).model
        log("model", model=name, version=model.version, folder=str(folders[name]), without_sets=model.without_sets)
    bound.listen(BACKLOG)  # so that what asks as soon as the line is printed is not refused
    host, port = bound.getsockname()[:2]
    address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    print(f"serving {', '.join(store.names)} at {address}", flush=True)
    try:
        listen(app, bound, reload, settings.timeout)
    finally:
        ended.set()
        store.close(settings.timeout)
        log("stopped")


def _look(ended: threading.Event, seconds: float, reload: Any) -> None:
    """Load models that were replaced, every so many seconds."""
    while not ended.wait(seconds):
        reload(True)


def _references(given: list[str], folders: dict[str, Path]) -> dict[str, str]:
    found: dict[str, str] = {}
    for each in given:
        name, equals, file = each.partition("=")
        if not equals:
            if len(folders) > 1:
                raise InputError(f"serve: there are {len(folders)} models: give --monitor NAME={each}")
            name, file = next(iter(folders)), each
        if name not in folders:
            raise InputError(f"serve: --monitor {each}: no model is named {name!r}; they are {', '.join(folders)}")
        if name in found:
            raise InputError(f"serve: --monitor is given twice for model {name!r}")
        found[name] = file
    return found


def _warn(text: str) -> None:
    print(f"consilience: {text}", file=sys.stderr, flush=True)
