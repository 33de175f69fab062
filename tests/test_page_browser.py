"""The page in a real Chromium: no error, no request, hover, toggles, keyboard, widths, themes."""

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from strategies import make_instance

from agents.policy import make_policy
from bace_env.config import load_scenario
from bace_env.scenario import build_instance
from bace_env.trace import Decision, EpisodeTrace
from eval.episode_page import Shown, build_page, limit_reasons
from eval.replay import explain_episode
from eval.rollout import run_episode

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
from selenium.webdriver import ActionChains, Keys  # noqa: E402
from selenium.webdriver.chrome.service import Service  # noqa: E402

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
pytestmark = [
    pytest.mark.jit,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine"),
    pytest.mark.skipif(DRIVER is None, reason="no chromedriver on this machine"),
]
SPECS = ("bace", "ldf")
WIDE, PHONE = (1280, 800), (390, 844)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    instance = build_instance(load_scenario("paper"), 0)
    shown = []
    for spec in SPECS:
        policy = make_policy(spec)
        trace = run_episode(instance, policy)
        shown.append(Shown(trace, limit_reasons(explain_episode(trace, policy))))
    path = tmp_path_factory.mktemp("page") / "a page.html"
    path.write_text(build_page(shown), "utf-8")
    return path


@pytest.fixture
def opened(browser: Any, file: Path) -> Any:
    show(browser, file)
    return browser


def show(browser: Any, file: Path, size: tuple[int, int] = WIDE, *, scheme: str = "light") -> None:
    """Open the page anew in a window of that size."""
    browser.get_log("browser")
    browser.get_log("performance")
    screen = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": size == PHONE}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    browser.get(file.as_uri())
    assert browser.execute_script("return document.documentElement.dataset.ready") == "true"


def find(browser: Any, selector: str) -> Any:
    return browser.find_element("css selector", selector)


def hover(browser: Any, chart: str, x: float, y: float) -> str:
    """The text that appears over that point of a canvas."""
    canvas = find(browser, chart)
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", canvas)
    left, top = canvas.size["width"] / 2, canvas.size["height"] / 2
    ActionChains(browser, duration=0).move_to_element_with_offset(
        canvas, round(x - left), round(y - top)
    ).perform()
    return str(find(browser, "#tip").text)


def job_at(browser: Any, episode: int, job: int) -> list[float]:
    script = f"return document.getElementById('gantt-{episode}').where({job})"
    found: list[float] = browser.execute_script(script)
    return found


@pytest.mark.parametrize("size", [WIDE, PHONE])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_loads_without_an_error_or_a_request(
    size: tuple[int, int], scheme: str, browser: Any, file: Path
) -> None:
    show(browser, file, size, scheme=scheme)
    assert browser.get_log("browser") == []
    sent = []
    for entry in browser.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            sent.append(message["params"]["request"]["url"])
    assert [url for url in sent if not url.startswith("data:")] == [file.as_uri()]
    width = browser.execute_script("return document.documentElement.scrollWidth")
    assert width <= size[0]  # nothing runs out of the window
    dark = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert (dark == "rgb(18, 22, 29)") == (scheme == "dark")
    drawn = browser.execute_script(
        "return [...document.querySelectorAll('canvas')].map((c) => new Set(c.getContext('2d')"
        ".getImageData(0, 0, c.width, c.height).data).size)"
    )
    assert len(drawn) == 2 + 1 + 2 + 8  # LDF uses no link
    assert min(drawn) > 5


def test_hover_says_every_quantity_of_a_job_with_its_unit(opened: Any) -> None:
    trace = run_episode(build_instance(load_scenario("paper"), 0), make_policy("bace"))
    job = 4
    text = hover(opened, "#gantt-0", *job_at(opened, 0, job))
    said = dict(zip(text.splitlines()[1::2], text.splitlines()[2::2], strict=True))
    assert text.splitlines()[0] == "Job 4: Qwen2.5-32B (bace)"
    day = 86400
    path, gpus = trace.placement(job)
    for label, value, unit in (
        ("arrival", 0, "d"),
        ("start", trace.start_s[job] / day, "d"),
        ("finish", trace.finish_s[job] / day, "d"),
        ("waited", trace.start_s[job] / day, "d"),
        ("ran (Eq. 2)", (trace.finish_s[job] - trace.start_s[job]) / day, "d"),
        ("JCT (Eq. 3)", trace.finish_s[job] / day, "d"),
        ("iteration (Eq. 1)", trace.iteration_s[job], "s"),
        ("reserved per hop", trace.bytes_per_s[job] / 1.25e8, "Gbit/s"),
        ("energy", trace.energy_kwh[job], "kWh"),
    ):
        number, _, unit_said = said[label].partition(" ")
        assert float(number.replace(",", "")) == pytest.approx(value, rel=1e-3, abs=1e-9), label
        assert unit_said == unit
    cost = float(said["cost (Eq. 4)"].removeprefix("$").replace(",", ""))
    assert cost == pytest.approx(trace.cost_usd[job], rel=1e-3)
    assert said["GPUs"] == f"{sum(gpus)} of K* = 252"
    assert said["path"].count("→") == len(path) - 1
    assert said["model"] == "Qwen2.5-32B"


@pytest.mark.parametrize(
    ("chart", "words"),
    [
        ("#links-0", ("time", "reserved", "Gbit/s", "latency", " ms", "jobs")),
        ("#jobs-1", ("Job 0", "(ldf)", "JCT", "GPUs", "kWh")),
        ("#curve-queue", ("Jobs waiting at", "bace", "ldf", "jobs")),
        ("#curve-price", ("Price at", "EU-West", "OC-East", "$/kWh")),
        ("#curve-spend", ("bace", "ldf", "$/h")),
        ("#curve-spent", ("bace", "ldf", "$")),
        ("#curve-power", ("bace", "ldf", "kW")),
        ("#curve-alpha", ("bace", "ldf")),
        ("#curve-busy", ("bace", "ldf", "GPUs")),
    ],
)
def test_hover_reads_every_chart(chart: str, words: tuple[str, ...], opened: Any) -> None:
    text = hover(opened, chart, find(opened, chart).size["width"] * 0.2, 9)
    assert all(word in text for word in words), text
    hover(opened, chart, 3, 3)  # over the names: nothing
    assert not find(opened, "#tip").is_displayed()


def test_hover_reads_the_map(opened: Any) -> None:
    for selector, words in (
        ("#panel-map svg g[aria-label='EU-West']", ("GPUs", "64", "$/kWh", "kW")),
        ("#panel-map svg path[aria-label*='→']", ("Gbit/s", "reserved, mean", "jobs over it")),
    ):
        node = find(opened, selector)
        opened.execute_script("arguments[0].scrollIntoView({block: 'center'})", node)
        opened.execute_script("arguments[0].focus()", node)
        text = find(opened, "#tip").text
        assert all(word in text for word in words), text


def test_a_policy_can_be_hidden_and_shown(opened: Any) -> None:
    button = find(opened, "#show-1")
    assert find(opened, "#gantt-1").is_displayed()
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    assert not find(opened, "#gantt-1").is_displayed()
    assert find(opened, "#gantt-0").is_displayed()
    assert "ldf" not in hover(opened, "#curve-busy", 300, 20)
    button.click()
    assert button.get_attribute("aria-pressed") == "true"
    assert find(opened, "#gantt-1").is_displayed()
    assert "ldf" in hover(opened, "#curve-busy", 300, 20)


def test_panels_fold_and_come_back_drawn(opened: Any) -> None:
    summary = find(opened, "#panel-gantt summary")
    summary.click()
    assert not find(opened, "#gantt-0").is_displayed()
    summary.click()
    assert find(opened, "#gantt-0").is_displayed()
    assert "Job 2" in hover(opened, "#gantt-0", *job_at(opened, 0, 2))


def test_theme_can_be_chosen(opened: Any) -> None:
    colours = []
    for _ in range(4):
        script = "return getComputedStyle(document.body).backgroundColor"
        colours.append(opened.execute_script(script))
        find(opened, "#theme").click()
    assert colours[0] == colours[1] == colours[3] == "rgb(255, 255, 255)"  # auto, light, auto
    assert colours[2] == "rgb(18, 22, 29)"


def test_zoom_moves_all_charts_together(opened: Any) -> None:
    before = job_at(opened, 0, 4)[0], job_at(opened, 1, 4)[0]
    find(opened, "button[aria-label='Zoom in']").click()
    find(opened, "button[aria-label='Earlier']").click()
    find(opened, "button[aria-label='Earlier']").click()
    after = job_at(opened, 0, 4)[0], job_at(opened, 1, 4)[0]
    assert all(a > b + 50 for a, b in zip(after, before, strict=True))
    find(opened, "button[aria-label='Whole episode']").click()
    assert (job_at(opened, 0, 4)[0], job_at(opened, 1, 4)[0]) == pytest.approx(before)


def test_a_job_is_chosen_everywhere_at_once(opened: Any) -> None:
    hover(opened, "#gantt-0", *job_at(opened, 0, 7))
    ActionChains(opened, duration=0).click().perform()
    detail = find(opened, "#detail").text
    assert detail.startswith("Job 7: Qwen2.5-14B")
    assert detail.count("JCT (Eq. 3)") == 2  # under both policies
    assert find(opened, "#jobs tr.chosen button").text == "7 Qwen2.5-14B"
    assert find(opened, "#reasons strong").text.startswith("Qwen2.5-14B starts on ")
    find(opened, "#detail button").click()
    assert find(opened, "#detail").text == ""
    assert not opened.find_elements("css selector", "#jobs tr.chosen")


def test_the_table_sorts_both_ways(opened: Any) -> None:
    def first_column() -> list[str]:
        cells = opened.find_elements("css selector", "#jobs tbody td:first-child")
        return [cell.text for cell in cells]

    trace = run_episode(build_instance(load_scenario("paper"), 0), make_policy("bace"))
    names = [f"{j} {name}" for j, name in enumerate(trace.instance.job_names)]
    assert first_column() == names
    titles = [
        head.text.split("\n")[0]
        for head in opened.find_elements("css selector", "#jobs th[scope=col]")
    ]
    head = opened.find_elements("css selector", "#jobs th[scope=col]")[titles.index("E(1)")]
    by_work = sorted(range(len(names)), key=lambda j: trace.instance.single_gpu_s[j])
    for expected, order in (("ascending", by_work), ("descending", by_work[::-1])):
        button = head.find_element("css selector", "button")
        opened.execute_script("arguments[0].click()", button)
        assert head.get_attribute("aria-sort") == expected
        assert first_column() == [names[j] for j in order]


def test_reasons_are_paged_through(opened: Any) -> None:
    earlier, later = (
        button for button in opened.find_elements("css selector", "#panel-decisions .row button")
    )
    assert not earlier.is_enabled()
    opened.execute_script("arguments[0].click()", later)
    assert find(opened, "#decision").get_property("value") == "1"
    text = find(opened, "#reasons").text
    assert text.startswith("Ministral-3-14B starts on US-East-2 x64")
    for word in ("alpha (Eq. 11)", "priority (Eq. 12)", "refused: ", "chosen", "D (Eq. 10)"):
        assert word in text
    assert earlier.is_enabled()


def test_everything_is_reached_by_the_keyboard_in_the_order_of_the_page(opened: Any) -> None:
    where = []
    for _ in range(200):
        ActionChains(opened, duration=0).send_keys(Keys.TAB).perform()
        node = opened.switch_to.active_element
        if node.tag_name == "body":
            break
        script = (
            "const n = arguments[0], b = n.getBoundingClientRect();"
            "return [n.id || n.textContent.slice(0, 30), n.tagName, b.top + scrollY, b.width]"
        )
        where.append(opened.execute_script(script, node))
    ids = [name for name, *_ in where]
    assert where[0][0] == "Skip to the charts"
    expected = ["show-0", "show-1", "theme", "gantt-0", "gantt-1", "links-0", "jobs-0", "jobs-1"]
    expected += [f"curve-{n}" for n in ("queue", "running", "busy", "alpha", "price", "spend")]
    expected += ["decision"]
    places = [ids.index(name) for name in expected]
    assert places == sorted(places)
    folds = [tag for _, tag, *_ in where].count("SUMMARY")
    assert folds == 8
    assert ids.count("0 FLM-101B") == 1  # the job's button in the table


def test_arrow_keys_walk_through_the_jobs_and_enter_chooses(opened: Any) -> None:
    opened.execute_script("document.getElementById('gantt-0').focus()")
    titles = []
    for _ in range(3):
        ActionChains(opened, duration=0).send_keys(Keys.ARROW_RIGHT).perform()
        titles.append(find(opened, "#tip b").text)
    assert all(title.startswith("Job ") for title in titles)
    spoken = opened.execute_script("return document.getElementById('said').textContent")
    assert spoken.startswith(f"{titles[-1]}. model ")
    ActionChains(opened, duration=0).send_keys(Keys.ENTER).perform()
    assert find(opened, "#detail strong").text == titles[-1].removesuffix(" (bace)")
    ActionChains(opened, duration=0).send_keys(Keys.ESCAPE).perform()
    assert find(opened, "#detail").text == ""
    opened.execute_script("document.getElementById('curve-spent').focus()")
    read = []
    for key in (Keys.HOME, Keys.END):
        ActionChains(opened, duration=0).send_keys(key).perform()
        read.append(find(opened, "#tip").text)
    assert read[0] != read[1]


def test_text_contrasts_with_its_ground(browser: Any, file: Path) -> None:
    """WCAG AA: 4.5 to 1, in both themes."""
    for scheme in ("light", "dark"):
        show(browser, file, scheme=scheme)
        script = (
            "const s = getComputedStyle(document.documentElement);"
            "return ['--paper', '--panel', '--ink', '--soft', '--a', '--b', '--accent']"
            ".map((n) => s.getPropertyValue(n).trim())"
        )
        paper, panel, *inks = browser.execute_script(script)
        for ink in inks:
            assert contrast(ink, paper) >= 4.5, (scheme, ink)
            assert contrast(ink, panel) >= 4.5, (scheme, ink)


def contrast(one: str, other: str) -> float:
    def luminance(colour: str) -> float:
        parts = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_a_hundred_thousand_jobs_make_a_page_that_opens_at_once(
    browser: Any, tmp_path: Path
) -> None:
    trace = one_after_another(100_000)
    page = build_page([Shown(trace, note="none"), Shown(trace, note="none")], "many.jobs.csv")
    assert len(page.encode()) <= 15e6
    path = tmp_path / "many.html"
    path.write_text(page, "utf-8")
    before = time.perf_counter()
    show(browser, path)
    assert time.perf_counter() - before <= 5
    assert browser.get_log("browser") == []
    text = hover(browser, "#gantt-0", 640, 15)
    assert "busy (mean)" in text
    assert "of 2 GPUs" in text
    assert len(browser.find_elements("css selector", "#jobs tbody tr")) == 100
    assert "all of them are in many.jobs.csv" in find(browser, "#panel-jobs").text


def one_after_another(n: int) -> EpisodeTrace:
    """Jobs of 1 s that arrive every second and run at once, in a region of 2 GPUs."""
    arrivals = np.arange(n, dtype=float)
    instance = make_instance(
        gpus=[2], comp_s=[np.array([0.25])], jobs=[(t, 0, 1) for t in arrivals.tolist()]
    )
    whole = np.ones((n, 1), dtype=np.int64)
    return EpisodeTrace(
        instance=instance,
        policy="by hand",
        end_s=float(n),
        decisions=tuple(Decision(t, j, 0) for j, t in enumerate(arrivals.tolist())),
        start_s=arrivals,
        finish_s=arrivals + 1,
        path_length=whole[:, 0],
        path=whole - 1,
        alloc=whole,
        iteration_s=np.ones(n),
        bytes_per_s=np.zeros(n),
        energy_kwh=np.ones(n) / 3600,
        cost_usd=np.ones(n) / 36000,
    )
