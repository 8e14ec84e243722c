"""One more try, where it makes sense and there is time for it."""

from __future__ import annotations

import pytest
from tests.stubs.fake_cloud import FakeCloud

from vedette.escalate.asking import Asking, RoundTrips
from vedette.escalate.port import CloudError, Question
from vedette.wire.bundle import Task
from vedette.wire.escalation import CloudFault

QUESTION = Question("r-1", Task.CLASSIFY, b"jpeg", 64, 48, ("cat", "dog"), "")


class Watch:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.slept: list[float] = []

    def monotonic_ns(self) -> int:
        return round(self.now_s * 1e9)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_s += seconds


def asking(cloud: FakeCloud, watch: Watch) -> Asking:
    return Asking(cloud, watch, sleep=watch.sleep, draw=lambda: 0.5)


def fault(word: CloudFault, *, retry_after_s: float | None = None, final: bool = False) -> CloudError:
    return CloudError(word, "no", retry_after_s=retry_after_s, final=final)


@pytest.mark.parametrize("word", [CloudFault.CONNECT, CloudFault.BROKEN, CloudFault.SERVER, CloudFault.BUSY])
def test_what_may_pass_is_asked_once_more(word: CloudFault) -> None:
    cloud, watch = FakeCloud(fault(word), "dog"), Watch()
    assert asking(cloud, watch).ask(QUESTION, 103.0).label == "dog"
    assert watch.slept == [0.25]


def test_a_second_failure_is_the_answer() -> None:
    cloud, watch = FakeCloud(fault(CloudFault.BUSY), fault(CloudFault.SERVER), "dog"), Watch()
    with pytest.raises(CloudError) as caught:
        asking(cloud, watch).ask(QUESTION, 103.0)
    assert (caught.value.fault, len(cloud.asked)) == (CloudFault.SERVER, 2)


@pytest.mark.parametrize(
    "error",
    [
        fault(CloudFault.DEADLINE),
        fault(CloudFault.QUOTA, final=True),
        fault(CloudFault.FORBIDDEN, final=True),
        fault(CloudFault.REJECTED),
        fault(CloudFault.MALFORMED),
        fault(CloudFault.REFUSED),
        fault(CloudFault.BUSY, final=True),
    ],
)
def test_what_will_not_pass_is_not_paid_for_twice(error: CloudError) -> None:
    cloud, watch = FakeCloud(error, "dog"), Watch()
    with pytest.raises(CloudError):
        asking(cloud, watch).ask(QUESTION, 110.0)
    assert len(cloud.asked) == 1


def test_case_49_a_wish_is_kept_where_there_is_time_and_else_nobody_sleeps() -> None:
    cloud, watch = FakeCloud(fault(CloudFault.BUSY, retry_after_s=2.0), "dog"), Watch()
    assert asking(cloud, watch).ask(QUESTION, 103.0).label == "dog"
    assert watch.slept == [2.0]
    cloud, watch = FakeCloud(fault(CloudFault.BUSY, retry_after_s=4.0), "dog"), Watch()
    with pytest.raises(CloudError):
        asking(cloud, watch).ask(QUESTION, 103.0)
    assert watch.slept == []


def test_a_try_that_would_come_too_late_is_not_made() -> None:
    """Answers of this cloud take two seconds."""
    cloud, watch = FakeCloud("dog", fault(CloudFault.SERVER), "dog", took_s=2.0), Watch()
    one = asking(cloud, watch)
    one.ask(QUESTION, 103.0)
    with pytest.raises(CloudError):
        one.ask(QUESTION, 102.0)
    assert len(cloud.asked) == 2


def test_round_trips_of_the_last_answers() -> None:
    trips = RoundTrips()
    assert trips.quantile(0.9) == 0.0
    for took_s in [9.0] * 64 + [float(number) for number in range(1, 65)]:
        trips.add(took_s)
    assert (trips.quantile(0.5), trips.quantile(0.9)) == (33.0, 58.0)
