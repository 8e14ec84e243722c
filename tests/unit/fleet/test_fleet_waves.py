"""Case 62: a percentage that is a percentage."""

from __future__ import annotations

import hashlib
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vedette.errors import UsageError
from vedette.wire.rollout import BUCKETS, Rollout, bucket_of, concerns
from vedette_fleet.waves import next_share, parse_share, parse_waves, percent, wave_number

DEVICES = [f"dev-{number:04}" for number in range(10_000)]


def reached(waves: str, *, sha256: str = "a" * 64) -> set[str]:
    """The devices that a rollout names when its last wave is open."""
    rollout = Rollout("r", "cifar", "t", sha256, sha256[:16], parse_waves(waves)[-1])
    return {device for device in DEVICES if concerns(rollout, device_id=device, model="cifar", labels={})}


def test_nobody_at_0_and_everybody_at_100() -> None:
    assert reached("0%") == set()
    assert reached("100%") == set(DEVICES)


@pytest.mark.parametrize("share", [1, 50, 99])
def test_a_share_is_that_share(share: int) -> None:
    expected = share / 100 * len(DEVICES)
    spread = (len(DEVICES) * share / 100 * (1 - share / 100)) ** 0.5
    assert abs(len(reached(f"{share}%")) - expected) < 4 * spread


def test_the_devices_that_another_bucketing_lost_are_in() -> None:
    """With sha256 mod 101 these three were in no percentage at all."""
    lost = {"dev-0192", "dev-0293", "dev-0306"}
    for device in lost:
        assert int(hashlib.sha256(device.encode()).hexdigest(), 16) % 101 == 100
    assert lost <= reached("100%")
    last = max(DEVICES, key=lambda device: bucket_of("a" * 16, device))
    assert last in reached("100%")


def test_a_larger_share_only_adds() -> None:
    assert reached("0.5%") < reached("1%") < reached("10%") < reached("50%") < reached("99%")


def test_other_releases_have_other_canaries() -> None:
    first, second = reached("1%", sha256="a" * 64), reached("1%", sha256="b" * 64)
    assert len(first & second) < 0.2 * len(first)


def test_a_device_without_an_id_waits_for_everybody() -> None:
    rollout = Rollout("r", "cifar", "t", "a" * 64, "s", parse_share("99.99%"))
    assert not concerns(rollout, device_id="", model="cifar", labels={})
    everybody = Rollout("r", "cifar", "t", "a" * 64, "s", parse_share("100%"))
    assert concerns(everybody, device_id="", model="cifar", labels={})


@given(st.integers(0, BUCKETS))
def test_what_is_printed_is_what_was_meant(share: int) -> None:
    assert parse_share(percent(share)) == share


@given(st.decimals(0, 100, places=2))
def test_two_digits_are_exact(value: object) -> None:
    assert Fraction(parse_share(f"{value} %"), BUCKETS) == Fraction(str(value)) / 100


@pytest.mark.parametrize("text", ["", "half", "-1%", "101%", "nan", "1e9", "0.001%", "1//2", "10%%", "1/0"])
def test_what_is_no_share_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_share(text)


@pytest.mark.parametrize("text", ["10%,1%", "1%,1%", "1%,,2%", "1%,"])
def test_waves_must_grow(text: str) -> None:
    with pytest.raises(UsageError):
        parse_waves(text)


def test_waves_are_opened_one_by_one() -> None:
    waves = parse_waves("1%, 10%, 100%")
    assert waves == (100, 1000, 10_000)
    assert [next_share(waves, share) for share in (0, 100, 500, 1000, 10_000)] == [
        100,
        1000,
        1000,
        10_000,
        None,
    ]
    assert [wave_number(waves, share) for share in (0, 100, 500, 10_000)] == [0, 1, 1, 3]
