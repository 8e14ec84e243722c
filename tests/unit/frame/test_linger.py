"""Looking before sleeping is earned by short waits and forfeited by vain ones."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from vedette.frame.linger import EARNED_AFTER, MOST_NS, Linger


def test_a_camera_never_makes_it_look() -> None:
    """Thirty frames a second leave 33 ms between frames: every wait is a sleep."""
    linger = Linger(usable_cpus=4)
    for _ in range(1000):
        assert linger.budget_ns == 0
        linger.slept(33_000_000)


def test_an_answering_partner_earns_it() -> None:
    """After a few short sleeps it looks first, and goes on as long as that works."""
    linger = Linger(usable_cpus=2)
    for _ in range(EARNED_AFTER):
        assert linger.budget_ns == 0
        linger.slept(90_000)
    for _ in range(100):
        assert linger.budget_ns == MOST_NS
        linger.looked(found=True)


def test_on_one_cpu_nothing_is_granted() -> None:
    """While one looks, the other cannot run."""
    linger = Linger(usable_cpus=1)
    for _ in range(100):
        linger.slept(10)
        assert linger.budget_ns == 0


@given(st.lists(st.booleans(), min_size=50, max_size=400))
def test_vain_looking_stays_a_small_share(luck: list[bool]) -> None:
    """Whatever comes: each vain look must have been earned by at least three waits that were short."""
    linger = Linger(usable_cpus=2)
    vain = short = 0
    for soon in luck:
        if linger.budget_ns:
            linger.looked(found=soon)
            vain += not soon
        else:
            linger.slept(50_000 if soon else 5_000_000)
        short += soon
    assert vain <= short / 3 + 3
