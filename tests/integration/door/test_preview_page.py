"""The preview page in headless Chromium, without a network; its pictures are kept under test-out/."""

from __future__ import annotations

import base64
import shutil
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest
from tests.integration.door.asking import ask
from tests.integration.door.fake_daemon import LATENCY, LOADING, MODEL, READY, FakeDaemon, camera_status
from tests.stubs.waiting import until

from vedette.link.port import LinkStatus
from vedette.update.phases import Phase
from vedette.update.record import Candidate, Mark
from vedette.update.record import ModelRef as ReleaseRef
from vedette.update.status import UpdateStatus
from vedette.wire.messages import Detection, Label, Result
from vedette.wire.pixels import PixelFormat, describe

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray
    from typing_extensions import Self

    from vedette.api.messages import CameraStatus

REPOSITORY = Path(__file__).resolve().parents[3]
WIDTH, HEIGHT = 640, 400
FORMAT = describe(WIDTH, HEIGHT, PixelFormat.BGR24)
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--no-first-run",
)
HOSTILE = "<img src=x onerror=window.hacked=1>"


def find_chromium() -> tuple[str, str] | None:
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    return None if browser is None or driver is None else (browser, driver)


pytestmark = pytest.mark.skipif(find_chromium() is None, reason="Chromium and chromedriver are not installed")


class Page:
    """A browser with the page open."""

    def __init__(self) -> None:
        selenium = pytest.importorskip("selenium.webdriver")
        found = find_chromium()
        assert found is not None
        options = selenium.ChromeOptions()
        for flag in FLAGS:
            options.add_argument(flag)
        options.binary_location = found[0]
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = selenium.Chrome(options=options, service=selenium.ChromeService(found[1]))
        self.driver.set_page_load_timeout(20)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.driver.quit()

    def size(self, width: int, height: int, *, scheme: str = "light") -> None:
        """Set what the page sees of its window, and whether its reader likes it dark."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})

    def run(self, script: str) -> Any:  # noqa: ANN401 - JavaScript gives anything
        return self.driver.execute_script(script)

    def text(self) -> str:
        return str(self.run("return document.body.innerText"))

    def shows(self, *words: str) -> None:
        """Wait until the page says all of this."""
        until(lambda: all(word in self.text() for word in words), f"the page says {words}")

    def keep(self, name: str) -> Path:
        """A picture of the whole page, for people."""
        folder = REPOSITORY / "test-out"
        folder.mkdir(exist_ok=True)
        shot = self.driver.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True})
        path = folder / f"preview-{name}.png"
        path.write_bytes(base64.b64decode(shot["data"]))
        return path


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with Page() as opened:
        yield opened


def frame(number: int) -> tuple[NDArray[np.uint8], tuple[float, float, float, float]]:
    """A dusk over a hill, and something red that crosses it; where that is."""
    rows = np.linspace(0, 1, HEIGHT)[:, None]
    columns = np.linspace(0, 1, WIDTH)[None, :]
    pixels = np.empty((HEIGHT, WIDTH, 3), np.float32)
    pixels[:, :, 0], pixels[:, :, 1], pixels[:, :, 2] = 120 - 60 * rows, 90 + 40 * rows, 70 + 110 * rows
    pixels[rows > 0.68 + 0.08 * np.sin(columns * 7)] = (52, 66, 48)
    x, y = 40 + 9 * number % (WIDTH - 180), 210
    pixels[y : y + 60, x : x + 110] = (40, 40, 190)
    return pixels.astype(np.uint8), (float(x), float(y), float(x + 110), float(y + 60))


class Traffic:
    """Two cameras with pictures and answers; what else the daemon says is in `daemon`."""

    def __init__(self, daemon: FakeDaemon) -> None:
        self.daemon = daemon
        self._over = threading.Event()
        for name in ("front", "yard"):
            daemon.show_camera(name, FORMAT.frame_bytes)
        self._thread = threading.Thread(target=self._play, name="traffic")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(10)

    def _play(self) -> None:
        number = 0
        while not self._over.wait(0.06):
            number += 1
            pixels, box = frame(number)
            infer_ms = 4.6 + (number * 37 % 11) / 8
            latency = msgspec.structs.replace(LATENCY, infer=infer_ms, total=infer_ms + 0.8)
            seqs = {name: self.daemon.publish(name, pixels, FORMAT) for name in ("front", "yard")}
            boxes = (Detection("van", 0, 0.93, box), Detection(HOSTILE, 3, 0.4, (20.0, 20.0, 90.0, 90.0)))
            top = (Label("minibus", 0, 0.81), Label("ambulance", 1, 0.11), Label("beach wagon", 2, 0.05))
            now_ns = time.monotonic_ns()
            self.daemon.saw(
                [
                    Result(
                        1,
                        "front",
                        seqs["front"],
                        now_ns,
                        MODEL,
                        "detect",
                        detections=boxes,
                        latency_ms=latency,
                    ),
                    Result(1, "yard", seqs["yard"], now_ns, MODEL, "classify", top=top, latency_ms=latency),
                ]
            )


def cameras() -> tuple[CameraStatus, ...]:
    return (
        camera_status("front", fps=16.4, ok=40_110, dropped={"superseded": 1_078}, failed={"infer": 2}),
        camera_status("yard", fps=16.1, ok=9_100, dropped={"stale": 113}, restarts=3),
        camera_status(HOSTILE, "failed", fps=0.0, ok=110, dropped={"damaged": 10}, restarts=17),
    )


UPDATE = UpdateStatus(
    phase=Phase.FETCH,
    active=ReleaseRef("aa" * 32, 3),
    previous=ReleaseRef("bb" * 32, 2),
    candidate=Candidate("cc" * 32, 4, "dd" * 32, "nightly-4", Mark()),
    bytes_fetched=1_300_000,
    bytes_needed=3_100_000,
    next_look_s=3000.0,
)
RELEASES = {"aa" * 32: "redness 3", "bb" * 32: "redness 2", "cc" * 32: "redness 4"}
LINK = LinkStatus(
    connected=True,
    broker="broker.plant-a:8883",
    protocol=5,
    since_s=5400.0,
    last_loss="",
    connects=3,
    waiting_events=2,
    waiting_reports=0,
    waiting_bytes=812,
    dropped_reports=0,
    dropped_results=0,
    set_aside=0,
    bad_messages={},
    commands={},
)


def test_a_person_sees_how_the_box_is_doing(page: Page, tmp_path: Path) -> None:
    """Pictures that move, plots, ledger, accelerator truth, update and link; nothing comes from elsewhere."""
    with FakeDaemon(tmp_path) as daemon, Traffic(daemon):
        daemon.lend_ring()
        daemon.status_changes = {"cameras": cameras(), "update": UPDATE, "releases": RELEASES, "link": LINK}
        until(lambda: ask(daemon.url, "/preview/picture/yard").status == 200, "pictures")
        page.size(1280, 800)
        page.driver.get(f"{daemon.url}/preview")
        page.shows("ready", "bench-1", "van 93 %", "minibus 81 %", "cuda, cpu", "no CUDA device is visible")
        page.shows("1.3 MB of 3.1 MB", "nightly-4", "redness 4", "superseded 1,078", "broker.plant-a:8883")
        assert HOSTILE in page.text()
        assert page.run("return window.hacked") is None
        until(
            lambda: page.run("return document.querySelectorAll('.plot svg path.infer').length") == 2, "plots"
        )
        pictures = "return [...document.querySelectorAll('.picture img')].map((i) => [i.src, i.naturalWidth])"
        until(lambda: [w for _, w in page.run(pictures)][:2] == [WIDTH, WIDTH], "pictures are shown")
        before = page.run(pictures)
        until(lambda: page.run(pictures)[0][0] != before[0][0], "the picture moves")
        page.keep("desk")
        page.size(1280, 800, scheme="dark")
        assert page.run("return getComputedStyle(document.body).backgroundColor") != "rgb(243, 245, 248)"
        page.keep("desk-dark")
        page.size(390, 844)
        assert page.run("return document.documentElement.scrollWidth <= innerWidth"), "no sideways scrolling"
        assert page.keep("phone").stat().st_size > 10_000
        loaded = page.run("return performance.getEntriesByType('resource').map((entry) => entry.name)")
        assert loaded
        assert all(name.startswith((daemon.url, "blob:")) for name in loaded)
        complaints = [entry for entry in page.driver.get_log("browser") if entry["level"] == "SEVERE"]
        assert complaints == []


def test_the_page_works_while_nothing_else_does(page: Page, tmp_path: Path) -> None:
    """No model, a camera that waits, then no daemon that answers, then no door at all; and all comes back."""
    with FakeDaemon(tmp_path) as daemon:
        daemon.description = LOADING
        waiting = camera_status("gate", "waiting", fps=0.0, restarts=4)
        daemon.status_changes = {"cameras": (waiting,), "model": None, "engine": None}
        page.size(1280, 800)
        page.driver.get(f"{daemon.url}/preview")
        page.shows("not ready", "loading redness 3: building an engine", "no picture (waiting)")
        page.shows("No updates are configured.", "No MQTT link is configured.")
        page.keep("loading")
        daemon.description, daemon.status_changes = READY, {"cameras": ()}
        page.shows("No camera is running.", "3 answered, 20 % of tolerance")
        daemon.stop_control()
        page.shows("agent away", "no vedette-agent answers", "Not known: the agent does not answer.")
        assert "is configured" not in page.text(), "what is not known is not shown as nothing"
        page.keep("agent-away")
        daemon.process.kill()
        page.shows("no connection", "the agent does not answer")
