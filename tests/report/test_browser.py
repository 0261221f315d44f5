"""The page in a browser: it fits a phone, its chart and tables answer, and no injected script runs."""

import html
import json
import re
import shutil
import subprocess

import pytest

from consilience.report import render_page
from report.factory import make_findings


@pytest.fixture(scope="module")
def source():
    return render_page(make_findings(chosen="qmf"))


CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PROBE = """
<!doctype html><body><iframe id="phone" width="390" height="800" srcdoc="{page}"></iframe>
<script>
addEventListener("load", function () {{
  var inner = document.getElementById("phone"), page = inner.contentDocument, root = page.documentElement;
  var figures = Array.from(page.querySelectorAll("figure svg")).filter(function (one) {{ return one.clientWidth; }});
  var ink = function () {{ return inner.contentWindow.getComputedStyle(root).color; }};
  var before = ink(), hidden = page.getElementById("theme").hidden;
  page.getElementById("theme").click();
  var chart = page.getElementById("chart");
  var drawn = function () {{ return chart.querySelectorAll("path.line").length; }};
  var lines = drawn(), box = chart.querySelectorAll(".chip input")[1];
  box.click();
  var plot = chart.querySelector(".plot"), edge = plot.getBoundingClientRect();
  var at = {{ clientX: edge.right - 20, clientY: edge.top + 90 }};
  plot.dispatchEvent(new inner.contentWindow.PointerEvent("pointermove", at));
  var table = page.querySelector("table[data-sort]");
  table.querySelector("th[data-column='2'] button").click();
  table.querySelector("th[data-column='2'] button").click();
  var order = Array.from(table.tBodies[0].rows).map(function (row) {{ return row.cells[2]; }});
  order = order.filter(function (cell) {{ return cell && cell.dataset.value; }});
  document.body.dataset.found = JSON.stringify({{
    inner: inner.clientWidth, scroll: root.scrollWidth, hidden: hidden, toggled: before !== ink(),
    widest: Math.max.apply(null, figures.map(function (one) {{ return one.getBoundingClientRect().right; }})),
    figures: figures.length, still: page.querySelectorAll(".still figure").length, lines: lines, after: drawn(),
    tip: chart.querySelector(".tip").textContent, cue: page.querySelectorAll(".scroll.more").length > 0,
    order: order.map(function (cell) {{ return Number(cell.dataset.value); }})
  }});
}});
</script>
"""


def dump(probe, profile):
    """What the page has become in Chromium, and what was logged."""
    quiet = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-sync", "--no-first-run"]
    quiet += ["--disable-background-networking", "--disable-component-update", "--enable-logging=stderr"]
    run = subprocess.run(
        [CHROMIUM, "--headless", *quiet, f"--user-data-dir={profile}", "--dump-dom", probe.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    return run


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed, so the page is not opened in a browser")
def test_in_a_browser_the_page_fits_a_phone_and_raises_no_error(source, tmp_path):
    probe = tmp_path / "probe.html"
    probe.write_text(PROBE.format(page=html.escape(source)), encoding="utf-8")
    run = dump(probe, tmp_path / "profile")
    match = re.search(r'<body data-found="([^"]+)"', run.stdout)
    assert match, run.stderr[-2000:]
    found = json.loads(html.unescape(match[1]))
    assert found["scroll"] <= found["inner"] == 390
    assert found["widest"] <= 390
    assert found["figures"] + found["still"] == len(re.findall("<figure ", source))
    assert found["lines"] == found["after"] + 1 == 8
    assert found["tip"].count("±") == 7
    assert found["tip"].startswith("level 10")
    assert found["order"] == sorted(found["order"])
    assert found["cue"]
    assert not found["hidden"]
    assert found["toggled"]
    assert "CONSOLE" not in run.stderr, run.stderr[-2000:]


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed, so the page is not opened in a browser")
def test_in_a_browser_an_injected_script_does_not_run(source, tmp_path):
    """Even if a name were not escaped: only the page's own two scripts and its own style sheet are allowed."""
    mark = "document.documentElement.dataset.injected = 1"
    injected = (
        f"<script>{mark}</script><img src=x onerror='{mark}'><svg onload='{mark}'></svg>"
        f"<style>body {{ display: none }}</style><script src='data:text/javascript,{mark}'></script>"
    )
    page = tmp_path / "page.html"
    page.write_text(source.replace("<main>", f"<main>{injected}", 1), encoding="utf-8")
    run = dump(page, tmp_path / "profile")
    assert "data-injected" not in run.stdout.partition("<head>")[0]
    assert '<button id="theme" type="button" aria-label' in run.stdout  # the page's own script shows it
    assert "Content Security Policy" in run.stderr
    unguarded = tmp_path / "unguarded.html"
    text = page.read_text(encoding="utf-8")
    unguarded.write_text(re.sub(r"<meta http-equiv=.Content-Security-Policy[^>]*>", "", text), encoding="utf-8")
    assert "data-injected" in dump(unguarded, tmp_path / "profile").stdout.partition("<head>")[0]  # the probe works
