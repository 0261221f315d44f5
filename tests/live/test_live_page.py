"""The live page: its answers are those of Python, and it can be used with a mouse, a finger and a keyboard."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install 'consilience[onnx]'")

import consilience.live
from consilience.core.samples import Samples
from consilience.live import scenes
from consilience.live.graph_json import Block
from consilience.live.page import render
from consilience.live.scenes import CASES, machine, scene_json
from consilience.live.shown_samples import LOUDEST, shown_samples

pytestmark = pytest.mark.slow
WAIT = 120_000  # ms
METHODS = ("late", "bayes-robust")
NODE = shutil.which("node")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_chromium = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium is installed, so the page is not opened in a browser"
)
SCRIPT = Path(consilience.live.__file__).with_name("templates") / "graph.js"
COMPARE = """
const { described, block } = JSON.parse(require("fs").readFileSync(0));
const raw = Buffer.from(block, "base64");
const bytes = raw.buffer.slice(raw.byteOffset, raw.byteOffset + raw.byteLength);
const inputs = readTensors(described.cases.inputs, bytes);
const found = {};
for (const [method, outputs] of Object.entries(described.cases.outputs)) {
  const graph = described.graphs[method];
  graph.constants = readTensors(graph.constants, bytes);
  const answers = runGraph(graph, inputs);
  for (const [name, { data }] of Object.entries(readTensors(outputs, bytes))) {
    const differences = data.map((value, i) => Math.abs(value - answers[name].data[i]));
    found[`${method} ${name}`] = [data.length, Math.max(...differences)];
  }
}
console.log(JSON.stringify(found));
"""


@pytest.fixture(scope="module")
def trained():
    """A scene in plain values with models that were trained for moments, the block of its arrays, and the models."""
    scene = machine()
    block = Block()
    small = replace(scene, train=scene.train[:200], test=scene.test[:40])
    kept = {}

    def keep_models(samples, std, models, seed):
        kept.update(models)
        return shown_samples(samples, std, models, seed)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scenes, "shown_samples", keep_models)
        described = scene_json(small, block, METHODS, epochs=10)
    return described, block, kept


@pytest.fixture(scope="module")
def made(trained):
    described, block, _ = trained
    return described, block


@pytest.mark.skipif(NODE is None, reason="needs Node.js, which runs the page's script: nodejs.org")
def test_the_page_answers_as_python_does(made):
    import base64

    described, block = made
    asked = json.dumps({"described": described, "block": base64.b64encode(bytes(block.content)).decode()})
    script = SCRIPT.read_text(encoding="utf-8") + COMPARE
    done = subprocess.run([str(NODE), "-e", script], input=asked, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert {f"{name} {what}" for name in METHODS for what in ("probabilities", "trust")} <= set(found)
    assert "bayes-robust reliability" in found
    for name, (count, difference) in found.items():
        assert count == CASES * (4 if "probabilities" in name else 3)
        assert difference < 1e-4, name


@pytest.fixture(scope="module")
def page(made, tmp_path_factory):
    described, block = made
    path = tmp_path_factory.mktemp("live") / "live.html"
    path.write_text(render([described, {**described, "name": "Again"}], block), encoding="utf-8")
    return path


def test_it_asks_for_nothing_from_outside(page):
    text = page.read_text(encoding="utf-8")
    assert "default-src 'none'" in text
    assert not any(word in text.split("<main")[0] for word in ("http://", "https://", "<link"))


def test_it_links_back_only_where_it_is_told_to(made):
    described, block = made
    kicker = re.compile('<p class="kicker">(.*)</p>')
    alone, in_site = render([described], block), render([described], block, home='../index.html?"')
    assert kicker.findall(alone) == ["consilience · live"]
    assert "<a " not in alone
    assert kicker.findall(in_site) == ['<a href="../index.html?&#34;">consilience</a> · live']


@needs_chromium
@pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (390, "dark")])
def test_it_can_be_used(page, width, scheme):
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with api.sync_playwright() as player:
        browser = player.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme, has_touch=width < 400)
        errors: list[str] = []
        tab.on("pageerror", lambda error: errors.append(str(error)))
        tab.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        tab.goto(page.as_uri())
        tab.set_default_timeout(120_000)
        tab.wait_for_selector(".method")
        press = tab.tap if width < 400 else tab.click

        def shows(selector):
            # Not wait_for_function: the page's policy forbids what it evaluates.
            return api.expect(tab.locator(selector))

        def says(name):
            return tab.text_content(f".method[data-method='{name}'] .says")

        def trust():
            return tab.text_content("[data-modality='vibration'] .meters span:last-child")

        sound = [says(name) for name in METHODS], trust()
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        # A slider by the keyboard.
        tab.focus("[data-modality='vibration'] input")
        tab.keyboard.press("End")
        shows("[data-modality='vibration'] output").to_have_text("10.0 σ", timeout=WAIT)
        tab.wait_for_timeout(1500)
        noisy = [says(name) for name in METHODS], trust()
        assert noisy != sound
        # A button: a missing modality has no trust, and the next one takes its place.
        press("[data-modality='vibration'] button[data-key='missing']")
        shows("[data-modality='vibration'] small").to_have_text("missing", timeout=WAIT)
        assert trust() == "–"
        assert tab.get_attribute("[data-modality='vibration'] button[data-key='missing']", "aria-pressed") == "true"
        # The decisions stay in sight beside the controls of the last modality, in whatever form.
        tab.locator("[data-modality]").last.scroll_into_view_if_needed()
        in_sight = "#brief" if width < 400 else ".method[data-method='bayes-robust'] .says"
        api.expect(tab.locator(in_sight)).to_be_in_viewport(timeout=WAIT)
        decision, mark = says("bayes-robust").rsplit(" ", 1)
        assert f"bayes-robust {decision.partition(',')[0]} {mark}" in tab.text_content("#brief")
        # Back to where it was.
        tab.get_by_role("button", name="all is well").click()
        shows("[data-modality='vibration'] small").not_to_have_text("missing", timeout=WAIT)
        tab.wait_for_timeout(1500)
        assert ([says(name) for name in METHODS], trust()) == sound
        # The other scene, by an arrow key.
        tab.focus("#tab-0")
        tab.keyboard.press("ArrowRight")
        assert tab.get_attribute("#tab-1", "aria-selected") == "true"
        tab.wait_for_selector(".share")
        shows("#check").to_contain_text("differ by at most", timeout=WAIT)
        assert float(tab.get_attribute("#check", "data-difference")) < 1e-4
        assert errors == []
        browser.close()


@pytest.fixture
def opened(page):
    """The page in a browser, once its first answers are there."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with api.sync_playwright() as player:
        browser = player.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": 1200, "height": 900}, reduced_motion="reduce")
        tab.set_default_timeout(WAIT)
        tab.goto(page.as_uri())
        settled(tab)
        yield tab
        browser.close()


def settled(tab):
    """Wait until everything that is shown belongs to the last change."""
    tab.wait_for_selector("#shares:not([aria-busy]) .share")


def click(tab, situation):
    tab.get_by_role("button", name=situation).click()
    settled(tab)


def drawn(tab, what):
    """Modality → its ρ or its trust, as its card has it."""
    cards = {card.get_attribute("data-modality"): card for card in tab.locator(".modality").all()}
    return {name: re.search(rf"{what}([\d.]+|–)", card.text_content())[1] for name, card in cards.items()}


def broken_first(described):
    """The first sample with its first modality broken, as Python reads it."""
    sample = described["samples"][0]
    X = {name: np.array([x]) for name, x in sample["x"].items()}
    name, std = described["modalities"][0]["name"], described["modalities"][0]["std"]
    X[name] = X[name] + LOUDEST * np.array(std) * np.array([sample["noise"][name]])
    return Samples.of(X)


@needs_chromium
def test_it_begins_with_a_typical_sample(opened, trained):
    described, _, models = trained
    assert described["typical"]
    assert f"This holds for {described['typical']} of the 40 samples" in opened.text_content("#first")
    assert opened.locator(".says.right").count() == len(METHODS)
    click(opened, "one is broken")
    assert "bayes-robust says " in opened.text_content("#said")
    assert "which is right" in opened.text_content("#said")
    rho = models["bayes-robust"].full_prediction(broken_first(described)).extra["reliability"][0]
    assert [value < 0.5 for value in rho] == [True, False, False]
    assert list(map(float, drawn(opened, "ρ").values())) == pytest.approx(rho.tolist(), abs=0.0051)


@needs_chromium
def test_cards_say_whose_reliability_and_trust_they_show(opened):
    assert opened.locator(".modality .meters").all_text_contents() == [
        f"bayes-robustρ{rho}trust{trust}"
        for rho, trust in zip(drawn(opened, "ρ").values(), drawn(opened, "trust").values(), strict=True)
    ]
    assert "bayes-robust" in opened.text_content("#cards-say")


@needs_chromium
@pytest.mark.parametrize("situation", ["all is well", "one is broken", "one is swapped", "one is missing"])
def test_the_words_about_trust_fit_the_numbers(opened, situation):
    click(opened, situation)
    for _ in range(6):
        check_words(opened.text_content("#said"), drawn(opened, "trust"))
        opened.click("#next")
        settled(opened)


def check_words(said, trust):
    """The modalities and numbers that the sentence names are those that the cards have."""
    there = {name: float(value) for name, value in trust.items() if value != "–"}
    most, least = max(there.values()), min(there.values())
    if said.endswith("about alike."):
        assert most <= 1.15 * least + 0.02, (said, trust)  # rounded numbers
        assert all(name in said for name in there)
        return
    assert most > 1.15 * least - 0.02, (said, trust)
    words = re.search(r"It trusts (.*) \((0\.\d+)(?: each)?\) most and (.*) \(([\d.]+)(?: each)?\) least\.", said)
    assert words, said
    for names, number, extreme in ((words[1], words[2], most), (words[3], words[4], least)):
        assert float(number) == extreme
        assert set(names.split(" and ")) == {name for name, value in there.items() if value == extreme}


@needs_chromium
def test_what_is_not_computed_yet_is_dimmed(opened):
    shares = opened.locator("#shares")
    before = shares.text_content()
    # At once after the click, in one script, since computing begins soon.
    now = opened.get_by_role("button", name="one is broken").evaluate(
        """button => {
          button.click();
          const shares = document.getElementById("shares");
          return [shares.textContent, shares.getAttribute("aria-busy"), getComputedStyle(shares).opacity];
        }"""
    )
    assert now == [before, "true", "0.35"]
    settled(opened)
    assert shares.text_content() != before
    assert shares.evaluate("shares => getComputedStyle(shares).opacity") == "1"
