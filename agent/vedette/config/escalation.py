"""The `escalation` section of a configuration: the large model, the promise, the budget, what may be sent."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta

from vedette.config.camera import home_problems
from vedette.config.document import Notation
from vedette.config.notation import Name, Seconds, SizeBytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from vedette.config.yaml_tree import Problem

_TARGET = re.compile(r"(\d{1,3}(?:\.\d+)?)\s*%\s*of\s+cloud", re.ASCII)
_SHARE = re.compile(r"(\d{1,3}(?:\.\d+)?)\s*%", re.ASCII)


def parse_target(value: object) -> float:
    """Accept `98% of cloud`: the share of what the large model would have got right.

    Returns:
        The share, above 0.5 and below 1.

    Raises:
        ValueError: Anything else.
    """
    match = _TARGET.fullmatch(value.strip()) if isinstance(value, str) else None
    share = math.nan if match is None else float(match[1]) / 100
    if not 0.5 < share < 1:
        raise ValueError('expected "98% of cloud", above 50% and below 100%')
    return share


def parse_share(value: object) -> float:
    """Accept `2%`, or a number from 0 to 1.

    Raises:
        ValueError: Anything else.
    """
    match = _SHARE.fullmatch(value.strip()) if isinstance(value, str) else None
    share = float(match[1]) / 100 if match is not None else value
    if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 <= share <= 1:
        raise ValueError('expected "2%", or a number from 0 to 1')
    return float(share)


Share = Annotated[float, Notation(parse_share)]


class PolicyConfig(msgspec.Struct, frozen=True):
    """When a frame is unsure.

    Exactly one of `target` (a promise, kept with probability 1 - delta), `selective` (at most this share of
    the answers kept locally differ) and `threshold` (a plain number).
    """

    target: Annotated[float, Notation(parse_target)] | None = None
    selective: Share | None = None
    threshold: Annotated[float, Meta(ge=0, le=1)] | None = None
    delta: Annotated[float, Meta(gt=0, lt=0.5)] = 0.05
    score: Literal["max_softmax", "margin"] = "max_softmax"


class BudgetConfig(msgspec.Struct, frozen=True):
    """What may be spent, over all cameras; a limit that is left out does not exist.

    Prices are in the same currency as `money_per_day`, for a million tokens, and for each call.
    """

    per_minute: Annotated[int, Meta(ge=1)] | None = None
    per_day: Annotated[int, Meta(ge=1)] | None = None
    bytes_per_day: SizeBytes | None = None
    money_per_day: Annotated[float, Meta(gt=0)] | None = None
    price_prompt: Annotated[float, Meta(ge=0)] = 0.0
    price_completion: Annotated[float, Meta(ge=0)] = 0.0
    price_call: Annotated[float, Meta(ge=0)] = 0.0
    paced: bool = True


class AuditConfig(msgspec.Struct, frozen=True):
    """Frames sent at random, so that the promise can be measured; they have a budget of their own."""

    share: Share = 0.02
    per_day: Annotated[int, Meta(ge=1)] = 2000


class PrivacyConfig(msgspec.Struct, frozen=True):
    """What may leave the box.

    `send` the frame, the detected objects' `crop` with `margin` (share of its side), or `never`. The longer
    side is at most `max_side` pixels. Objects of classes in `blur` are made unrecognisable; a frame with one
    of `deny` stays here. A frame gives no crop where nothing was detected; then nothing is sent.
    """

    send: Literal["frame", "crop", "never"] = "frame"
    margin: Share = 0.1
    max_side: Annotated[int, Meta(ge=32, le=8192)] = 640
    quality: Annotated[int, Meta(ge=30, le=100)] = 85
    blur: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


class OfflineConfig(msgspec.Struct, frozen=True):
    """What waits on the disk while there is no way to the large model; `disk` 0 keeps nothing."""

    disk: SizeBytes = 20_000_000
    max_age_s: Seconds = 86_400.0
    drain_per_minute: Annotated[float, Meta(gt=0, le=6000)] = 20.0


class TrainingConfig(msgspec.Struct, frozen=True):
    """Samples kept for the next model; `consent` says who may use them, and stands in every sample."""

    disk: SizeBytes
    consent: tuple[str, ...] = ()


class CloudCacheConfig(msgspec.Struct, frozen=True):
    """Answers to the very same picture are reused for `ttl_s`."""

    memory: SizeBytes = 4_000_000
    ttl_s: Seconds = 300.0


class EscalationConfig(msgspec.Struct, frozen=True):
    """The large model and how it is used; without this section nobody is asked.

    `deadline_ms` is for the whole escalation. With `hold` a result waits for its outcome until then; without,
    it goes out at once and the outcome follows. `quiet` cameras are never asked about, `urgent` ones only
    where the answer is expected within their deadline, and are never held. `tensors`: how the Open Inference
    Protocol carries them; servers without its binary extension, such as MLServer, want json.
    """

    provider: Literal["oip", "openai"]
    url: Annotated[str, Meta(min_length=8, max_length=2048)]
    model: Annotated[str, Meta(min_length=1, max_length=128)]
    policy: PolicyConfig
    key: str | None = None
    key_file: str | None = None
    ca: str | None = None
    budget: BudgetConfig = BudgetConfig()
    audit: AuditConfig = AuditConfig()
    privacy: PrivacyConfig = PrivacyConfig()
    offline: OfflineConfig = OfflineConfig()
    training: TrainingConfig | None = None
    cache: CloudCacheConfig = CloudCacheConfig()
    deadline_ms: Annotated[float, Meta(ge=50, le=600_000)] = 3000.0
    hold: bool = False
    in_flight: Annotated[int, Meta(ge=1, le=32)] = 4
    cool_down_s: Annotated[float, Meta(ge=0, le=86_400)] = 5.0
    quiet: tuple[Name, ...] = ()
    urgent: tuple[Name, ...] = ()
    box_format: Literal["norm1000", "norm1", "pixel"] = "norm1000"
    input_name: str = "image"
    tensors: Literal["binary", "json"] = "binary"
    max_answer: SizeBytes = 1_000_000

    @classmethod
    def problems_of(cls, fields: Mapping[str, Any]) -> Iterator[Problem]:
        """A policy that says nothing or two things, secrets without an owner, an address that is none."""
        policy: PolicyConfig | None = fields.get("policy")
        if policy is not None:
            given = [
                name for name in ("target", "selective", "threshold") if getattr(policy, name) is not None
            ]
            if len(given) != 1:
                yield ("policy",), "needs exactly one of `target`, `selective` and `threshold`"
        url = fields.get("url")
        if url is not None and not url.startswith(("http://", "https://")):
            yield ("url",), "is no http:// or https:// address"
        if fields.get("key") is not None and fields.get("key_file") is not None:
            yield ("key_file",), "is one too many beside `key`"
        for name in ("key_file", "ca"):
            yield from home_problems(name, fields)

    def rooted(self, root: Callable[[str], str]) -> EscalationConfig:
        """The same with its paths made absolute."""
        key_file, ca = (None if path is None else root(path) for path in (self.key_file, self.ca))
        return msgspec.structs.replace(self, key_file=key_file, ca=ca)
