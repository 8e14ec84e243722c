"""Names: what may stand in a path, and which release people mean."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vedette.errors import UsageError
from vedette_fleet.names import (
    ReleaseName,
    check_name,
    find_owner,
    find_release,
    release_name,
    release_of_target,
)

KNOWN = [
    ReleaseName("demo", "cifar", "1"),
    ReleaseName("demo", "cifar", "2"),
    ReleaseName("acme", "cifar", "1"),
]
NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}", fullmatch=True)


@given(NAMES, NAMES, NAMES)
def test_a_release_is_found_again_from_its_target(owner: str, model: str, version: str) -> None:
    name = release_name(owner, model, version)
    assert release_of_target(name.target) == name
    assert find_release(str(name), [name]) == name


@pytest.mark.parametrize("name", ["", "..", ".x", "a/b", "a b", "a\0", "ä", "-x", "a" * 65, "a\n", "a%2f"])
def test_names_that_could_leave_their_place_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match="cannot be used"):
        check_name("owner", name)


@pytest.mark.parametrize(
    "target", ["rollouts.json", "models/a/b.json", "models/a/b/../c.json", "models/a/b/1", "m/a/b/1.json"]
)
def test_other_targets_are_no_releases(target: str) -> None:
    assert release_of_target(target) is None


def test_the_owner_may_be_left_away_when_it_is_clear() -> None:
    assert find_release("cifar@2", KNOWN) == KNOWN[1]
    assert find_release("acme/cifar@1", KNOWN) == KNOWN[2]
    with pytest.raises(UsageError, match="of demo and of acme"):
        find_release("cifar@1", KNOWN)
    with pytest.raises(UsageError, match="no release cifar@7") as caught:
        find_release("cifar@7", KNOWN)
    assert "demo/cifar@2" in (caught.value.cure or "")


@pytest.mark.parametrize("text", ["cifar", "cifar@", "@1", "demo/@1"])
def test_what_names_no_release_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="names no release"):
        find_release(text, KNOWN)


def test_an_owner_who_is_alone_need_not_be_named() -> None:
    assert find_owner(None, ["demo"]) == "demo"
    with pytest.raises(UsageError, match="not clear"):
        find_owner(None, ["demo", "acme"])
    with pytest.raises(UsageError, match="not clear"):
        find_owner(None, [])
