"""`consilience demo`: what the command hands to the live page, which is tested in `tests/live`."""

import pytest

from consilience.live import page


@pytest.mark.parametrize(("options", "home"), [((), None), (("--home", "../index.html"), "../index.html")])
def test_the_page_links_back_only_where_it_is_told_to(run, monkeypatch, tmp_path, options, home):
    asked = []

    def write(path, **settings):
        asked.append((path, settings))
        return path

    monkeypatch.setattr(page, "write_live_page", write)
    out = tmp_path / "live.html"
    assert f"live page: {out}" in run("demo", "--out", out, "--epochs", 2, *options).out
    assert asked == [(out, {"epochs": 2, "home": home})]
