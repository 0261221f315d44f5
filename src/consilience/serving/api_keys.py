"""API keys: read from a file, compared in constant time, each with a name for the log and an optional expiry."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from consilience.core.errors import InputError
from consilience.serving.refusals import Refusal

SHORTEST = 16
_ASK = {"WWW-Authenticate": "Bearer"}


@dataclass(frozen=True)
class Key:
    """name: for the log · digest: SHA-256 of the key · expires: from when on it is refused, or None."""

    name: str
    digest: bytes
    expires: datetime | None = None


def read_keys(path: str | Path) -> tuple[Key, ...]:
    """Read keys from a file: a line `NAME KEY [EXPIRES]` each, EXPIRES an ISO date or time; without a zone it is UTC.

    Empty lines and lines that begin with # are ignored.

    Raises:
        InputError: The file cannot be read, has no key, or a line is wrong; messages never show a key.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"serve: --api-key-file {path} cannot be read: {error}") from error
    keys: list[Key] = []
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        where = f"serve: --api-key-file {path}, line {number}"
        if len(words) not in (2, 3):
            raise InputError(f"{where}: it must be NAME KEY, or NAME KEY EXPIRES")
        if len(words[1]) < SHORTEST:
            raise InputError(f"{where}: the key must have at least {SHORTEST} characters: use openssl rand -hex 32")
        expires = _read_time(where, words[2]) if len(words) == 3 else None
        keys.append(Key(words[0], _digest(words[1]), expires))
    if not keys:
        raise InputError(f"serve: --api-key-file {path} has no key")
    if len({key.digest for key in keys}) < len(keys):
        raise InputError(f"serve: --api-key-file {path} has the same key twice")
    return tuple(keys)


def check_key(keys: tuple[Key, ...], headers: Mapping[str, str], now: datetime | None = None) -> str:
    """Return the name of the key in `Authorization: Bearer KEY` or `X-API-Key: KEY`; "" if no keys are required.

    Raises:
        Refusal: 401, without a key, with an unknown one, or with one that has expired.
    """
    if not keys:
        return ""
    scheme, _, bearer = headers.get("authorization", "").partition(" ")
    given = bearer.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")
    if not given:
        raise Refusal(401, "an API key is needed: send the header Authorization: Bearer KEY", _ASK)
    digest, found = _digest(given), None
    for key in keys:  # all of them, so that the time does not tell which one is near
        if hmac.compare_digest(key.digest, digest):
            found = key
    if found is None:
        raise Refusal(401, "the API key is not known: check it, or ask the operator of the server for one", _ASK)
    if found.expires is not None and (now or datetime.now(UTC)) >= found.expires:
        ended = f"the API key {found.name!r} expired at {found.expires.isoformat()}"
        raise Refusal(401, f"{ended}: ask the operator of the server for a new one", _ASK)
    return found.name


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


def _read_time(where: str, text: str) -> datetime:
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise InputError(f"{where}: the expiry must be a date or time such as 2030-01-31, got {text!r}") from error
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)
