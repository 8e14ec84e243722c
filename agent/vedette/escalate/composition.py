"""The asking process's parts, made of its configuration: folders, client, threads."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from vedette import fsops
from vedette.clock import SystemClock
from vedette.errors import ConfigError, storage_fault
from vedette.escalate.asker_pool import ThreadedPool
from vedette.escalate.asking import Asking
from vedette.escalate.backlog_files import BacklogFiles
from vedette.escalate.breaker import Breaker
from vedette.escalate.http_call import CloudHttp
from vedette.escalate.open_inference import OpenInferenceClient
from vedette.escalate.openai_chat import OpenAiChatClient
from vedette.escalate.paid_client import PaidClient
from vedette.escalate.purse import Purse, boot_name
from vedette.escalate.service import Service, ServiceParts
from vedette.escalate.training import TrainingSet
from vedette.fsops import Point
from vedette.trust.wall_clock import SystemWallClock

if TYPE_CHECKING:
    from vedette.clock import Clock
    from vedette.config.escalation import EscalationConfig
    from vedette.escalate.asker_pool import Job
    from vedette.escalate.messages import EscalatorSpec
    from vedette.escalate.outgoing import Outgoing
    from vedette.escalate.port import CloudAnswer, CloudClient

FOLDER = "escalation"
MAX_KEY_BYTES = 8192


class Composed(NamedTuple):
    """What the loop drives, and what is closed at the end."""

    service: Service
    pool: ThreadedPool
    client: CloudClient


def read_key(config: EscalationConfig, given: str) -> str:
    """The key: what the daemon gave, or the content of `key_file`.

    Raises:
        ConfigError: The file cannot be read, or holds no key.
    """
    if given or config.key_file is None:
        return given
    try:
        with Path(config.key_file).open("rb") as file:
            key = file.read(MAX_KEY_BYTES + 1).decode("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"escalation.key_file: {config.key_file} cannot be read: {error}",
            cure="let the agent's user read it; it holds the key alone",
        ) from error
    if not key or len(key) > MAX_KEY_BYTES or not key.isprintable():
        raise ConfigError(
            f"escalation.key_file: {config.key_file} holds no key", cure="write the key alone into it"
        )
    return key


def build_client(config: EscalationConfig, key: str, clock: Clock) -> CloudClient:
    """The client of the configured protocol."""
    http = CloudHttp(config.url, clock, key=key, ca=config.ca, max_answer_bytes=config.max_answer)
    if config.provider == "openai":
        return OpenAiChatClient(http, config.model, box_format=config.box_format)
    binary = config.tensors == "binary"
    return OpenInferenceClient(http, config.model, input_name=config.input_name, binary=binary)


def compose(spec: EscalatorSpec, config: EscalationConfig, key: str, outgoing: Outgoing) -> Composed:
    """Everything for one process.

    Raises:
        ConfigError: The key cannot be read.
        StorageError: The folder of the state cannot be made.
    """
    clock, wall, rng = SystemClock(), SystemWallClock(), random.SystemRandom()
    client = build_client(config, read_key(config, key), clock)
    folder = None if not spec.state_dir else _folder(Path(spec.state_dir), FOLDER)
    purse = Purse(config, folder, clock, wall.utc_s, boot=boot_name())
    paid = PaidClient(client, purse)
    asking = Asking(paid, clock, sleep=time.sleep, draw=rng.random)

    def ask(job: Job) -> CloudAnswer:
        paid.begin(audit=job.audit)
        return asking.ask(job.question, job.deadline_s)

    pool = ThreadedPool(ask, config.in_flight)
    training = None
    if folder is not None and config.training is not None:
        training = TrainingSet(_folder(folder, "training"), config.training)
    parts = ServiceParts(
        pool=pool,
        trips=asking.trips,
        purse=purse,
        breaker=Breaker(rng.random),
        backlog=BacklogFiles(None if folder is None else _folder(folder, "backlog"), config.offline),
        training=training,
        audits=None if folder is None else _folder(folder, "audits"),
        clock=clock,
        utc_s=wall.utc_s,
        conclude=outgoing.conclude,
        tell=outgoing.tell,
    )
    return Composed(Service(spec, config, parts), pool, client)


def _folder(parent: Path, name: str) -> Path:
    folder = parent / name
    try:
        fsops.make_folder(folder, Point.AUDITS)
    except OSError as error:
        raise storage_fault(error, f"{folder} cannot be made") from error
    return folder
