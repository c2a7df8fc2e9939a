"""The kinds of records: their classes, the fields they are found by, and their collections."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from bascule.model.backend import BackendRecord
from bascule.model.platform import PlatformRecord
from bascule.model.profile import ProfileRecord
from bascule.model.server import ServerRecord
from bascule.model.task import TaskRecord
from bascule.model.user import UserRecord

Kind = Literal["server", "task", "profile", "platform", "backend", "user"]
Record: TypeAlias = (
    ServerRecord | TaskRecord | ProfileRecord | PlatformRecord | BackendRecord | UserRecord
)
CLASSES: Mapping[Kind, type[Record]] = {
    "server": ServerRecord,
    "task": TaskRecord,
    "profile": ProfileRecord,
    "platform": PlatformRecord,
    "backend": BackendRecord,
    "user": UserRecord,
}
KINDS: tuple[Kind, ...] = tuple(CLASSES)
KEY_FIELDS: Mapping[Kind, str] = {
    "server": "server_id",
    "task": "task_id",
    "profile": "name",
    "backend": "name",
    "user": "user_id",
}
#: What files and the API call many records of a kind; there is one platform record.
COLLECTIONS: Mapping[Kind, str] = {
    "server": "servers",
    "task": "tasks",
    "profile": "profiles",
    "platform": "platform",
    "backend": "backends",
    "user": "users",
}
SECTIONS: Mapping[str, Kind] = {name: kind for kind, name in COLLECTIONS.items()}
PLATFORM: Literal["platform"] = "platform"


def record_key(kind: Kind, record: Record) -> str:
    """Return what a record is found by; the one platform record has the key ``platform``."""
    return getattr(record, KEY_FIELDS[kind]) if kind in KEY_FIELDS else PLATFORM
