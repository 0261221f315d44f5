"""What is decided before the first job."""

from importlib.metadata import PackageNotFoundError

from consilience.comparison import store


def test_versions_are_of_what_is_installed(monkeypatch):
    """Fabric may come inside the distribution lightning, and is then known by that name."""

    def version(name):
        if name in ("lightning-fabric", "pytorch-lightning"):
            raise PackageNotFoundError(name)
        return "1.2.3"

    monkeypatch.setattr(store, "version", version)
    assert store.installed_versions() == dict.fromkeys(("torch", "numpy", "scikit-learn", "lightning"), "1.2.3")
