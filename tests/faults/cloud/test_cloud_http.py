"""The cloud at its worst: every request ends at its deadline, and says why (case 50 and its kind)."""

from __future__ import annotations

import socket
import threading
import time
from typing import TYPE_CHECKING, NoReturn

import pytest
from tests.stubs.cloud_scripts import ScriptedCloud, drips, floods, mute, says, sends

from vedette.clock import SystemClock
from vedette.errors import ConfigError
from vedette.escalate.http_call import CloudHttp
from vedette.escalate.port import CloudError
from vedette.escalate.status import meaning_of
from vedette.wire.escalation import CloudFault

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from vedette.escalate.http_call import HttpReply

DEADLINE_S = 0.4
# Of a shared machine; what the deadline is worth on a quiet one is a bench's to say.
SLACK_S = 12.0
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


@pytest.fixture
def opened() -> Iterator[list[CloudHttp]]:
    made: list[CloudHttp] = []
    yield made
    for one in made:
        one.close()


def post(url: str, opened: list[CloudHttp], **options: str | int) -> HttpReply:
    client = CloudHttp(url, SystemClock(), **options)  # type: ignore[arg-type] # of one type each
    opened.append(client)
    return client.post("/ask", b"{}", {}, time.monotonic() + DEADLINE_S)


def fault_of(url: str, opened: list[CloudHttp], **options: str | int) -> CloudError:
    began_s = time.monotonic()
    with pytest.raises(CloudError) as caught:
        post(url, opened, **options)
    assert time.monotonic() - began_s < DEADLINE_S + SLACK_S
    return caught.value


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(mute, id="mute"),
        pytest.param(drips(HEAD * 50), id="head drips"),
        pytest.param(drips(HEAD + b"Content-Length: 500\r\n\r\n" + b" " * 500, 0.01), id="body drips"),
        pytest.param(drips(HEAD + b"\r\n" + b" " * 5000, 0.005), id="body without a length drips"),
        pytest.param(
            drips(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\n \r\n" * 500, 0.01), id="chunks drip"
        ),
    ],
)
def test_case_50_a_server_that_keeps_us_waiting_is_left_at_the_deadline(
    opened: list[CloudHttp], script: object
) -> None:
    with ScriptedCloud(script) as cloud:  # type: ignore[arg-type] # a script
        error = fault_of(cloud.url, opened)
    assert error.fault is CloudFault.DEADLINE
    assert "had not answered in full after 0.4 s" in error.cause


@pytest.mark.parametrize(
    ("pieces", "fault"),
    [
        ((b"",), CloudFault.BROKEN),
        ((b"SSH-2.0-OpenSSH_9.2\r\n",), CloudFault.BROKEN),
        ((HEAD + b"Content-Length: 500\r\n\r\n{",), CloudFault.BROKEN),
        ((HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{",), CloudFault.BROKEN),
        ((HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",), CloudFault.BROKEN),
    ],
)
def test_an_answer_that_breaks_off_is_no_answer(
    opened: list[CloudHttp], pieces: tuple[bytes, ...], fault: CloudFault
) -> None:
    with ScriptedCloud(sends(*pieces)) as cloud:
        assert fault_of(cloud.url, opened).fault is fault


def test_case_50_half_a_gigabyte_is_not_read(opened: list[CloudHttp]) -> None:
    with ScriptedCloud(floods) as cloud:
        error = fault_of(cloud.url, opened, max_answer_bytes=100_000)
    assert error.fault is CloudFault.TOO_LARGE


def test_nobody_there_and_no_such_name(opened: list[CloudHttp]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    error = fault_of(f"http://user:secret@127.0.0.1:{port}", opened)
    assert error.fault is CloudFault.CONNECT
    assert "secret" not in error.diagnostics()
    assert fault_of("http://nowhere.invalid", opened).fault in {CloudFault.CONNECT, CloudFault.DEADLINE}


def test_plain_http_where_tls_is_spoken(opened: list[CloudHttp]) -> None:
    with ScriptedCloud(sends(b"HTTP/1.1 400 Bad Request\r\n\r\n")) as cloud:
        error = fault_of(cloud.url.replace("http://", "https://"), opened)
    assert error.fault in {CloudFault.CONNECT, CloudFault.DEADLINE, CloudFault.BROKEN}


def test_redirects_are_not_followed_and_keys_go_nowhere_else(opened: list[CloudHttp]) -> None:
    with (
        ScriptedCloud(says(b"{}")) as elsewhere,
        ScriptedCloud(
            says(b"", status="307 Temporary Redirect", headers=f"Location: {elsewhere.url}/\r\n")
        ) as cloud,
    ):
        reply = post(cloud.url, opened, key="k3y")
        assert reply.status == 307
        assert b"authorization: bearer k3y" in cloud.requests[0].lower()
        assert elsewhere.requests == []
    meaning = meaning_of(reply.status, reply.headers, reply.body)
    assert meaning is not None
    assert (meaning.fault, meaning.final) == (CloudFault.REJECTED, True)


def test_a_good_answer_comes_as_it_is_and_nothing_is_compressed(opened: list[CloudHttp]) -> None:
    with ScriptedCloud(says(b'{"a": 1}', headers="X-One: 1\r\n")) as cloud:
        reply = post(cloud.url + "/v1/", opened)
        assert (reply.status, reply.body, reply.headers["x-one"]) == (200, b'{"a": 1}', "1")
        assert cloud.requests[0].startswith(b"POST /v1/ask HTTP/1.1\r\n")
        assert b"accept-encoding: identity" in cloud.requests[0].lower()


@pytest.mark.parametrize("url", ["ftp://cloud", "cloud:8000", "http://", "http://cloud:99999", "http://[1"])
def test_what_is_no_address_is_a_wrong_configuration(url: str) -> None:
    with pytest.raises(ConfigError, match="no http or https URL"):
        CloudHttp(url, SystemClock())


@pytest.mark.parametrize("key", ["k3y\r\nX-Other: 1", "k3y ", "k\u00e9y"])
def test_what_is_no_key_is_a_wrong_configuration_and_is_not_shown(key: str) -> None:
    with pytest.raises(ConfigError, match="the key for the large model") as caught:
        CloudHttp("http://cloud", SystemClock(), key=key)
    assert key.strip() not in caught.value.diagnostics()


def test_the_key_wins_over_what_this_machine_knows_about_the_host(
    opened: list[CloudHttp], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests would rather take a user's .netrc, or the user in the URL, than our header."""
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login somebody password else\n")
    monkeypatch.setenv("NETRC", str(netrc))
    with ScriptedCloud(says(b"{}")) as cloud:
        for url in (cloud.url, cloud.url.replace("//", "//user:word@")):
            post(url, opened, key="k3y")
        for request in cloud.requests:
            assert b"\r\nAuthorization: Bearer k3y\r\n" in request
            assert b"Basic" not in request


def test_case_50_a_name_server_that_hangs_is_left_at_the_deadline(
    opened: list[CloudHttp], monkeypatch: pytest.MonkeyPatch
) -> None:
    over = threading.Event()

    def hanging(*_: object, **__: object) -> NoReturn:
        over.wait(30)
        raise socket.gaierror(socket.EAI_AGAIN, "no name server")

    monkeypatch.setattr(socket, "getaddrinfo", hanging)
    try:
        assert fault_of("http://cloud.example", opened).fault is CloudFault.DEADLINE
    finally:
        over.set()


def test_closing_ends_what_is_under_way_and_whatever_comes_later(opened: list[CloudHttp]) -> None:
    asked, over = threading.Event(), threading.Event()

    def silent(_: socket.socket, closing: threading.Event) -> None:
        asked.set()
        closing.wait(20)

    def close_when_asked() -> None:
        asked.wait(20)
        client.close()
        over.set()

    with ScriptedCloud(silent) as cloud:
        client = CloudHttp(cloud.url, SystemClock())
        opened.append(client)
        closer = threading.Thread(target=close_when_asked)
        closer.start()
        for _ in range(2):
            began_s = time.monotonic()
            with pytest.raises(CloudError, match="this agent ends") as caught:
                client.post("/ask", b"{}", {}, began_s + 100)
            assert time.monotonic() - began_s < 60
            assert (caught.value.fault, caught.value.final) == (CloudFault.BROKEN, True)
        closer.join(60)
    assert over.is_set()


@pytest.mark.parametrize(
    ("status", "body", "fault", "final"),
    [
        (
            429,
            b'{"error": {"code": "insufficient_quota", "message": "You exceeded"}}',
            CloudFault.QUOTA,
            True,
        ),
        (429, b'{"error": {"type": "insufficient_quota", "code": null}}', CloudFault.QUOTA, True),
        (429, b'{"error": {"code": "rate_limit_exceeded"}}', CloudFault.BUSY, False),
        (429, b'{"error": "slow down"}', CloudFault.BUSY, False),
        (429, b"", CloudFault.BUSY, False),
        (402, b"", CloudFault.QUOTA, True),
        (401, b"<html>", CloudFault.FORBIDDEN, True),
        (403, b"[1, 2]", CloudFault.FORBIDDEN, True),
        (400, b'{"error": {"message": "bad picture"}}', CloudFault.REJECTED, False),
        (404, b'{"error": "no such model"}', CloudFault.REJECTED, True),
        (413, b"", CloudFault.REJECTED, False),
        (422, b"[" * 5000, CloudFault.REJECTED, False),
        (408, b"", CloudFault.SERVER, False),
        (500, b"\xff\xfe", CloudFault.SERVER, False),
        (503, b"", CloudFault.BUSY, False),
        (504, b"", CloudFault.SERVER, False),
    ],
)
def test_case_49_each_status_has_its_meaning(
    status: int, body: bytes, fault: CloudFault, *, final: bool
) -> None:
    meaning = meaning_of(status, {"content-type": "application/json"}, body)
    assert meaning is not None
    assert (meaning.fault, meaning.final) == (fault, final)
    assert meaning.detail.startswith(f"HTTP {status}")
    assert meaning_of(200, {}, body) is None
