"""The topic tree: `vedette/1/<site>/<device>/…`. Pure.

A device writes only below its own branch and reads that and the announcements; so one ACL line with `%u` or
`%c` is enough for a whole fleet. Names are checked, never escaped: a name with `/`, `+` or `#` in it would
name somebody else's topic.
"""

from __future__ import annotations

import re

import msgspec

from vedette.errors import BadInputError

ROOT = "vedette/1"
DEFAULT_SITE = "default"
ANNOUNCE_ALL = "all"
# Every block server subscribes to this; the broker gives each request to one of them.
BLOCK_REQUESTS = f"$share/blk/{ROOT}/+/+/blk/get"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,63}")


def checked_name(name: str, what: str) -> str:
    """A level of a topic.

    Raises:
        BadInputError: It could not be one.
    """
    if not _NAME.fullmatch(name):
        raise BadInputError(
            f"{what} `{name[:80]}` cannot be a level of a topic",
            cure="use up to 64 letters, digits and - _ . : and begin with a letter or digit",
        )
    return name


class DeviceTopics(msgspec.Struct, frozen=True):
    """The branch of one device."""

    site: str
    device: str

    @classmethod
    def of(cls, site: str | None, device: str) -> DeviceTopics:
        """The branch of a device; one without a site stands under `default`.

        Raises:
            BadInputError: A name cannot be a level of a topic.
        """
        return cls(checked_name(site or DEFAULT_SITE, "site"), checked_name(device, "device"))

    @property
    def branch(self) -> str:
        """What all its topics begin with, without the last slash."""
        return f"{ROOT}/{self.site}/{self.device}"

    @property
    def status(self) -> str:
        """Birth and will: `plane.DeviceStatus`, retained, QoS 1."""
        return f"{self.branch}/status"

    @property
    def reported(self) -> str:
        """How updates stand: `plane.Reported`, retained, QoS 1."""
        return f"{self.branch}/reported"

    @property
    def event(self) -> str:
        """What happened: `plane.Event`, QoS 1, not retained."""
        return f"{self.branch}/event"

    @property
    def telemetry(self) -> str:
        """Windows of figures: `wire.telemetry.TelemetryReport`, QoS 1, not retained."""
        return f"{self.branch}/tele/report"

    def result(self, camera: str) -> str:
        """Answers of one camera: `messages.Result`, QoS 0, not retained."""
        return f"{self.branch}/result/{checked_name(camera, 'camera')}"

    @property
    def commands(self) -> str:
        """The filter of what it is asked."""
        return f"{self.branch}/cmd/+"

    def command(self, name: str) -> str:
        """Where a command goes; never retained."""
        return f"{self.branch}/cmd/{checked_name(name, 'command')}"

    def response(self, name: str) -> str:
        """Where its answer goes, unless the command names a response topic."""
        return f"{self.branch}/rsp/{checked_name(name, 'command')}"

    @property
    def block_request(self) -> str:
        """`blocks.BlockRequest`, QoS 0."""
        return f"{self.branch}/blk/get"

    @property
    def block_data(self) -> str:
        """`blocks.encode_data`, QoS 0."""
        return f"{self.branch}/blk/dat"


def announcements(channel: str = ANNOUNCE_ALL) -> str:
    """Where `plane.Announcement` stands, retained.

    Raises:
        BadInputError: The channel's name cannot be a level of a topic.
    """
    return f"{ROOT}/_announce/{checked_name(channel, 'channel')}"


class Address(msgspec.Struct, frozen=True):
    """What a topic of a device says: whose it is, and the levels below its branch."""

    topics: DeviceTopics
    rest: tuple[str, ...]


def parse_topic(topic: str) -> Address | None:
    """Whose topic it is; None when it is no device's."""
    levels = topic.split("/")
    if len(levels) < 5 or "/".join(levels[:2]) != ROOT or levels[2].startswith("_"):
        return None
    site, device = levels[2], levels[3]
    if not (_NAME.fullmatch(site) and _NAME.fullmatch(device)):
        return None
    return Address(DeviceTopics(site, device), tuple(levels[4:]))
