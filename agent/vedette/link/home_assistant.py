"""Home Assistant's discovery of a device over MQTT: one retained message describes all its entities. Pure.

Source: Home Assistant, "MQTT discovery" and "MQTT update" of its integration documentation (2025). States go
out ready-made under topics of our own, without templates that only Home Assistant could prove. Its schema for
the update entity drops a whole message for one unknown key or one null in a text, so those are left out.
"""

from __future__ import annotations

import re
import zlib
from typing import TYPE_CHECKING, Any

import msgspec

from vedette.mqtt.port import Outgoing
from vedette.wire.plane import JSON_TYPE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vedette.wire.plane import Reported
    from vedette.wire.topics import DeviceTopics

PREFIX = "homeassistant"
_NOT_IN_A_KEY = re.compile(r"[^A-Za-z0-9_-]")
# Phases in which nothing is under way that a person would wait for; words of `Reported.phase`.
_AT_REST = frozenset({"idle", "safe", "trust", "plan", "deferred", "report", "unknown"})
_MAX_SUMMARY = 255


class CameraState(msgspec.Struct, frozen=True):
    """One camera for a dashboard; `drops` counts since the start."""

    online: bool
    fps: float = 0.0
    latency_p95_ms: float | None = None
    drops: int = 0


class HomeState(msgspec.Struct, frozen=True, omit_defaults=True):
    """A box for a dashboard; what is not known is absent."""

    fps: float
    drops: int
    latency_p95_ms: float | None = None
    temperature_c: float | None = None
    cameras: dict[str, CameraState] = {}


class HomeAssistant:
    """The messages for one device."""

    def __init__(self, topics: DeviceTopics, *, agent: str, cameras: Sequence[str]) -> None:
        self._topics = topics
        self._agent = agent
        self._cameras = tuple(cameras)
        self._key = _key(f"{topics.site}-{topics.device}")

    @property
    def discovery_topic(self) -> str:
        """Where the description stands; an access list can name the device by the third level."""
        return f"{PREFIX}/device/{_key(self._topics.device)}/config"

    @property
    def state_topic(self) -> str:
        """Where `HomeState` stands."""
        return f"{self._topics.branch}/ha/state"

    @property
    def update_topic(self) -> str:
        """Where the update entity's state stands."""
        return f"{self._topics.branch}/ha/update"

    @property
    def topics(self) -> tuple[str, ...]:
        """All that is retained for Home Assistant."""
        return self.discovery_topic, self.state_topic, self.update_topic

    def discovery(self) -> Outgoing:
        """The description of the device and all its entities."""
        return _retained(
            self.discovery_topic,
            {
                "device": {
                    "identifiers": [f"vedette_{self._key}"],
                    "name": self._topics.device,
                    "manufacturer": "Vedette",
                    "model": "edge inference agent",
                    "sw_version": self._agent,
                },
                "origin": {"name": "vedette", "sw_version": self._agent},
                "availability": [
                    {
                        "topic": self._topics.status,
                        "value_template": "{{ 'online' if value_json.online else 'offline' }}",
                    }
                ],
                "state_topic": self.state_topic,
                "qos": 1,
                "components": self._components(),
            },
        )

    def state(self, state: HomeState) -> Outgoing:
        """What the sensors show: the cameras that are described, offline where nothing is known of one."""
        cameras = {name: state.cameras.get(name, CameraState(online=False)) for name in self._cameras}
        shown = msgspec.to_builtins(msgspec.structs.replace(state, cameras={}))
        # Keys of cameras are made safe, since templates reach them by name.
        shown["cameras"] = {_key(name): _shown(camera) for name, camera in cameras.items()}
        return _retained(self.state_topic, shown)

    def update(self, reported: Reported) -> Outgoing:
        """What the update entity shows; nobody installs from there, since only signed rollouts decide."""
        active, candidate = reported.active, reported.candidate
        under_way = candidate is not None and reported.phase not in _AT_REST
        shown: dict[str, Any] = {"in_progress": under_way, "update_percentage": None}
        if active is not None:
            shown["title"] = active.name
            shown["installed_version"] = shown["latest_version"] = active.version
        if candidate is not None:
            shown["latest_version"] = candidate.version
        if under_way and reported.phase == "fetch" and reported.bytes_needed > 0:
            share = reported.bytes_fetched / reported.bytes_needed
            shown["update_percentage"] = round(100 * min(1.0, max(0.0, share)), 1)
        summary = ": ".join(word for word in (reported.result, reported.cause, reported.detail) if word)
        if summary:
            shown["release_summary"] = summary[:_MAX_SUMMARY]
        return _retained(self.update_topic, shown)

    def _components(self) -> dict[str, dict[str, Any]]:
        found = {
            "fps": self._sensor("fps", "Frames a second", "fps", unit="fps", digits=1),
            "latency": self._sensor(
                "latency", "Latency p95", "latency_p95_ms", unit="ms", digits=1, device_class="duration"
            ),
            "drops": self._sensor("drops", "Frames dropped", "drops", state_class="total_increasing"),
            "temperature": self._sensor(
                "temperature",
                "Temperature",
                "temperature_c",
                unit="°C",
                digits=0,
                device_class="temperature",
            ),
            "update": {
                "platform": "update",
                "unique_id": self._id("update"),
                "name": "Model",
                "state_topic": self.update_topic,
            },
        }
        for camera in self._cameras:
            key = _key(camera)
            found[f"camera_{key}"] = {
                "platform": "binary_sensor",
                "unique_id": self._id(f"camera_{key}"),
                "name": f"Camera {camera}",
                "device_class": "connectivity",
                "value_template": f"{{{{ 'ON' if value_json.cameras['{key}'].online else 'OFF' }}}}",
            }
            found[f"camera_{key}_fps"] = self._sensor(
                f"camera_{key}_fps", f"Camera {camera} fps", f"cameras['{key}'].fps", unit="fps", digits=1
            )
        return found

    def _sensor(
        self,
        name: str,
        label: str,
        value: str,
        *,
        unit: str = "",
        digits: int | None = None,
        device_class: str = "",
        state_class: str = "measurement",
    ) -> dict[str, Any]:
        path = f"value_json.{value}"
        found: dict[str, Any] = {
            "platform": "sensor",
            "unique_id": self._id(name),
            "name": label,
            "state_class": state_class,
            # Home Assistant shows `unknown` for None, which is what an absent figure is.
            "value_template": f"{{{{ {path} if {path} is defined else None }}}}",
            "entity_category": "diagnostic",
        }
        if unit:
            found["unit_of_measurement"] = unit
        if digits is not None:
            found["suggested_display_precision"] = digits
        if device_class:
            found["device_class"] = device_class
        return found

    def _id(self, name: str) -> str:
        return f"vedette_{self._key}_{name}"


def removal(topic: str) -> Outgoing:
    """Takes a retained message back; Home Assistant then removes what it described."""
    return Outgoing(topic, b"", qos=1, retain=True)


def _shown(camera: CameraState) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(camera)
    return found


def _retained(topic: str, content: dict[str, Any]) -> Outgoing:
    return Outgoing(topic, msgspec.json.encode(content), qos=1, retain=True, content_type=JSON_TYPE)


def _key(name: str) -> str:
    """A name as Home Assistant takes it in topics and ids; one that had to be changed stays unique."""
    safe = _NOT_IN_A_KEY.sub("_", name)
    return safe if safe == name else f"{safe}_{zlib.crc32(name.encode()):08x}"
