"""Fault matrix: what is signed expires or is rotated, and clocks jump, while a whole box updates itself."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from tests.unit.trust.simulator import BUILD_UTC_S, LIFETIME_DAYS, NOW, RepositorySimulator
from tests.unit.update.box import TRIAL, Behaviour, Box

from vedette.clock import ManualClock
from vedette.trust.client import TufTrust
from vedette.trust.documents import Device
from vedette.update.causes import Cause, Result
from vedette.update.looking import Road
from vedette.update.phases import Phase
from vedette.update.plan import ClockWindow
from vedette.update.settings import UpdateSettings
from vedette.wire.release import build_manifest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from vedette.update.ports import Fetcher

DAY_S = 86_400.0
YEAR_S = 365 * DAY_S


class SteppedWall:
    """A wall clock beside the monotonic one; `shift_s` is what somebody set it by."""

    def __init__(self, box: Box) -> None:
        self._box = box
        self.shift_s = 0.0
        self.sync: bool | None = True

    def utc_s(self) -> float:
        return NOW.timestamp() + self._box.clock.monotonic_ns() / 1e9 + self.shift_s

    def synchronised(self) -> bool | None:
        return self.sync


class SimulatedRepository:
    """Implements the fetch port: metadata of a simulator, blobs of the box's publisher."""

    def __init__(self, simulator: RepositorySimulator, blobs: Fetcher) -> None:
        self._simulator = simulator
        self._blobs = blobs

    def metadata(self, path: str, max_bytes: int) -> Iterator[bytes]:
        return self._simulator.metadata(path, max_bytes)

    def blob(self, sha256: str, start: int, end: int) -> Iterator[bytes]:
        return self._blobs.blob(sha256, start, end)


class SignedBox(Box):
    """A box whose trust is the real one."""

    def follow(self, simulator: RepositorySimulator, bootstrap: bytes | None = None) -> SignedBox:
        """Start with this repository, whose first root it knows."""
        self.wall = SteppedWall(self)
        self.served = simulator
        self.bootstrap = bootstrap or simulator.bootstrap
        return self.take_road()

    def take_road(self) -> SignedBox:
        """Start, or start again, by the road of now."""
        fetcher = SimulatedRepository(self.served, self.fetcher)
        trust = TufTrust(
            fetcher,
            self.root / "state" / "trust",
            bootstrap=self.bootstrap,
            build_utc_s=BUILD_UTC_S,
            device=Device("box-1", "tiny", {}),
            clock=self.wall,
        )
        self.ports.update(road=Road(trust, fetcher), clock=self.clock, wall=self.wall)
        self.start()
        return self

    def reboot(self) -> SignedBox:
        """The machine starts again: its monotonic clock is at 0, its wall clock goes on."""
        self.driver.close()
        self.wall.shift_s += self.clock.monotonic_ns() / 1e9
        self.clock = ManualClock()
        return self.take_road()

    def publish(self, version: int, *, counter: int | None = None) -> None:
        """Sign a release and roll it out to everybody."""
        folder = self.publisher.folder / f"v{version}"
        bundle = folder if folder.exists() else self.publisher.bundle(version)
        manifest = self.publisher.release(version, bundle)
        content = build_manifest(manifest)
        self.served.roll_out(f"models/acme/tiny/{version}.json", content, jitter_s=0.0, trial=TRIAL)
        self.served.counter = counter
        self.served.publish()

    def causes(self) -> list[Cause]:
        """Of the notices, in order."""
        return [entry.notice.cause for entry in self.outbox() if entry.notice]


@pytest.fixture
def simulator() -> RepositorySimulator:
    return RepositorySimulator()


@pytest.fixture
def box(tmp_path: Path, simulator: RepositorySimulator) -> SignedBox:
    return SignedBox(tmp_path).follow(simulator)


def expiring(role: str) -> RepositorySimulator:
    """Everything is good for years but one role."""
    years = dict.fromkeys(LIFETIME_DAYS, 2000)
    return RepositorySimulator(lifetime_days={**years, role: LIFETIME_DAYS[role]})


# Expiry ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", sorted(LIFETIME_DAYS))
@pytest.mark.parametrize("phase", [Phase.FETCH, Phase.READY, Phase.TRIAL], ids=lambda phase: phase.value)
def test_expires_during_fetch_or_while_trial_and_the_update_goes_on(
    tmp_path: Path, phase: Phase, role: str
) -> None:
    """Fault matrix: expires during FETCH; expired while TRIAL. Expiry gates the start of an update only."""
    box = SignedBox(tmp_path).follow(expiring(role))
    box.publish(1)
    box.until_phase(phase)
    box.wall.shift_s += (LIFETIME_DAYS[role] + 1) * DAY_S
    box.driver.announce()
    report = box.until_result()
    assert (report.result, box.serving) == (Result.SUCCESS, "1")
    assert box.causes() == [Cause.EXPIRED]


def test_expired_repository_starts_nothing_until_it_is_refreshed(box: SignedBox) -> None:
    """Fault matrix: expired at each role, at the start: refused, told once, the box serves. Casebook 39."""
    box.publish(1)
    box.wall.shift_s += 4 * DAY_S
    box.driver.announce()
    box.until(lambda: Cause.EXPIRED in box.causes())
    for _ in range(3):
        box.driver.announce()
        box.until(lambda: box.idle)
    assert box.causes() == [Cause.EXPIRED]
    assert (box.fetcher.requests, box.until_serving().serving) == ([], "0")
    box.served.now = NOW + timedelta(days=4)
    box.served.publish()
    assert box.look_until_result().result is Result.SUCCESS


# Clocks ---------------------------------------------------------------------------------------------------

JUMPS = {
    "a day ahead": DAY_S,
    "a day back": -DAY_S,
    "ten years ahead": 10 * YEAR_S,
    "1970": -NOW.timestamp(),
}


@pytest.mark.parametrize("jump_s", JUMPS.values(), ids=JUMPS.keys())
@pytest.mark.parametrize("phase", [Phase.FETCH, Phase.TRIAL], ids=lambda phase: phase.value)
def test_clock_jumps_mid_update_and_windows_are_unaffected(
    box: SignedBox, phase: Phase, jump_s: float
) -> None:
    """Fault matrix: clock 1970, +10 y, jumps ±1 d mid-update. A trial lasts as long as it was to (I10)."""
    box.publish(1)
    box.until_phase(phase)
    box.wall.shift_s += jump_s
    box.until_phase(Phase.TRIAL)
    begun_ns = box.clock.monotonic_ns()
    box.until(lambda: box.record.phase is not Phase.TRIAL)
    assert TRIAL.min_s - 1 <= (box.clock.monotonic_ns() - begun_ns) / 1e9 <= TRIAL.min_s + 5
    box.until(lambda: box.idle)
    assert [report.result for report in box.results()] == [Result.SUCCESS]
    box.wall.shift_s -= jump_s
    box.publish(2)
    assert box.look_until_result().result is Result.SUCCESS, "a wrong clock poisoned the floor"
    assert box.serving == "2"


def test_monotonic_reset_by_reboot_does_not_make_a_trial_endless(box: SignedBox) -> None:
    """Fault matrix: monotonic reset by reboot. Trial time adds up; without a frame it ends at its limit."""
    box.behaviours["1"] = Behaviour(frames=False)
    box.publish(1)
    box.until_phase(Phase.TRIAL)
    used_s = 0.0
    for part_s in (1500.0, 1500.0):
        begun_ns = box.clock.monotonic_ns()
        box.until(lambda begun=begun_ns, part=part_s: box.clock.monotonic_ns() - begun > part * 1e9)  # type: ignore[misc]
        used_s += part_s
        box.reboot()
        assert box.until_serving().serving == "0"
        box.until_phase(Phase.TRIAL)
    report = box.until_result()
    assert (report.result, report.cause) == (Result.FAILED_ROLLED_BACK, Cause.TRIAL_TIMEOUT)
    assert box.serving == "0"
    assert box.clock.monotonic_ns() / 1e9 < TRIAL.max_s - used_s + 600


def test_started_at_1970_the_window_is_waited_for_until_the_clock_is_right(
    tmp_path: Path, simulator: RepositorySimulator
) -> None:
    """Casebook 39: no network at boot, the clock jumps to now after a while; nothing is ever switched off."""
    minutes = NOW.astimezone().hour * 60 + NOW.astimezone().minute
    window = ClockWindow((minutes - 60) % 1440, (minutes + 120) % 1440)
    box = SignedBox(tmp_path, settings=UpdateSettings(window=window)).follow(simulator)
    box.wall.shift_s, box.wall.sync = -NOW.timestamp(), False
    box.publish(1)
    box.until_phase(Phase.DEFERRED)
    assert box.fetcher.requests == []
    assert box.serving == "0"
    box.clock.advance_s(120)
    box.wall.shift_s, box.wall.sync = 0.0, True
    assert box.until_result().result is Result.SUCCESS
    assert box.causes() == []


def test_a_clock_that_never_gets_right_blocks_no_update_for_ever(
    tmp_path: Path, simulator: RepositorySimulator
) -> None:
    """Invariant I10: after a day of waiting for time the window no longer counts."""
    settings = UpdateSettings(window=ClockWindow(120, 180))
    box = SignedBox(tmp_path, settings=settings).follow(simulator)
    box.wall.shift_s, box.wall.sync = -NOW.timestamp(), False
    box.publish(1)
    box.until(lambda: box.serving == "1" and box.idle, steps=60_000)
    assert box.clock.monotonic_ns() / 1e9 > DAY_S
    assert [report.result for report in box.results()] == [Result.SUCCESS]


# Keys -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", [Phase.FETCH, Phase.TRIAL], ids=lambda phase: phase.value)
def test_key_rotation_in_the_middle_of_an_update_changes_nothing_for_it(box: SignedBox, phase: Phase) -> None:
    """Fault matrix: key rotation (timestamp, root) during an update; the next one installs too."""
    box.publish(1)
    box.until_phase(phase)
    box.served.rotate("root")
    box.served.rotate("timestamp", "snapshot")
    box.served.publish()
    box.driver.announce()
    report = box.until_result()
    assert (report.result, box.serving, box.causes()) == (Result.SUCCESS, "1", [])
    box.publish(2)
    assert box.look_until_result().result is Result.SUCCESS
    assert box.serving == "2"


def test_fast_forward_attack_recovery_of_a_whole_box(box: SignedBox) -> None:
    """Fault matrix: fast-forward attack recovery: new online keys let lower numbers install again."""
    box.publish(1)
    assert box.until_result().result is Result.SUCCESS
    honest = box.served
    thief = honest.copy()
    thief.timestamp_version = thief.snapshot_version = 2**31
    thief.delegated["rollouts"].version = 2**31
    thief.publish()
    honest.files, own = dict(thief.files), honest.files
    box.driver.announce()
    box.until(lambda: box.record.seen.counter == 2**31 + 1 and box.idle)
    honest.files = own
    box.publish(2)
    box.driver.announce()
    box.until(lambda: Cause.ROLLBACK_ATTACK in box.causes())
    assert box.serving == "1"
    honest.rotate("timestamp", "snapshot")
    honest.publish()
    assert box.look_until_result().result is Result.SUCCESS
    assert box.serving == "2"
    assert box.record.seen.epoch == 1
