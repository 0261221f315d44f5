import pytest

from consilience import methods
from consilience.core.errors import ConsilienceError, InputError, UnknownNameError, UnsupportedError
from consilience.core.samples import Modality
from consilience.methods import Method, Spec
from toy_batches import CLASSES, NUMBERS, VECTORS, batch_of

SPEC = Spec(VECTORS, CLASSES)


@pytest.fixture
def scratch():
    """A registry that the test may write to."""
    with methods.METHODS.restored():
        yield


def test_the_registry_knows_the_first_inhabitants_in_order():
    known = methods.registry()
    assert list(known) == sorted(known)
    first = {"concat", "align", "early", "late", "late-probs", "unimodal:", "best-unimodal"}
    assert first <= known.keys()
    assert all(cls.name == name for name, cls in known.items())
    known.clear()
    assert methods.registry()  # a copy


def test_families_are_spelled_out():
    names = methods.available(["keys", "temp.1"])
    assert {"unimodal:keys", "unimodal:temp.1", "concat"} <= set(names)
    assert "unimodal:" not in names
    assert "unimodal:MODALITY" in methods.available()


def test_finding():
    assert methods.find("concat")[1] is None
    cls, argument = methods.find("unimodal:temp.1")
    assert (cls.name, argument) == ("unimodal:", "temp.1")
    assert methods.find("unimodal:a:b")[1] == "a:b"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("conct", "unknown method 'conct': did you mean 'concat'"),
        ("Concat", "did you mean 'concat'"),
        ("unimodal", "did you mean 'unimodal:(image|audio)'.*It is a family"),
        ("unimodal-audio", "did you mean 'unimodal:audio'"),
        ("concat:image", "unknown method 'concat:image'"),
        ("", "Known: align"),
    ],
)
def test_unknown_methods_are_suggested(name, message):
    with pytest.raises(UnknownNameError, match=message):
        methods.build(name, SPEC)


def test_unknown_modalities_of_a_family_are_suggested():
    for name in ("unimodal:imge", "unimodal:"):
        with pytest.raises(UnknownNameError, match=r"unknown modality .*Known: audio, image.*'unimodal:NAME'"):
            methods.build(name, SPEC)


def test_settings():
    assert methods.build("concat", SPEC, {"width": 5}).head.in_features == 5
    assert methods.build("late", SPEC, {"expert_loss": 0.5}).expert_loss == 0.5  # inherited
    with pytest.raises(UnknownNameError, match=r"unknown setting 'wdth': did you mean 'width'.*method 'concat'"):
        methods.build("concat", SPEC, {"wdth": 5})
    with pytest.raises(UnknownNameError, match="unknown setting 'spec'"):  # only keyword-only arguments are settings
        methods.build("concat", SPEC, {"spec": 5})
    with pytest.raises(UnknownNameError, match=r"unknown setting 'width'\. There are none"):
        methods.build("best-unimodal", SPEC, {"width": 5})


@pytest.mark.parametrize("wrong", [{"width": "wide"}, {"width": -1}, {"dropout": 2.0}, {"width": 2.5}])
def test_settings_out_of_range_name_the_method_and_the_setting(wrong):
    with pytest.raises(InputError, match=rf"method 'concat': {next(iter(wrong))} must be"):
        methods.build("concat", SPEC, wrong)


def test_reasons_against():
    text = {"review": Modality("review", "tokens", (9,), 50), **VECTORS}
    for name, spec, reason in [
        ("late-probs", Spec(VECTORS, NUMBERS), "serves classification, not regression"),
        ("align", SPEC.only("image"), "needs at least 2 modalities, got 1"),
        ("early", Spec(text, CLASSES), "reads vector, image, sequence, not review"),
    ]:
        with pytest.raises(UnsupportedError, match=f"method {name!r} cannot be used here: it {reason}"):
            methods.build(name, spec)
        assert methods.registry()[name].reason_against(spec).startswith("it ")
    assert methods.registry()["concat"].reason_against(Spec(text, NUMBERS)) is None


@pytest.mark.parametrize("name", ["", "Concat", "con cat", "con_cat", "-concat", "concat-", "1concat", "a::", ":", "ä"])
def test_malformed_names_fail_at_registration(name):
    with pytest.raises(ConsilienceError, match="must be lower-case words joined by hyphens"):
        methods.register(name)


@pytest.mark.usefixtures("scratch")
def test_duplicates_fail_loudly():
    with pytest.raises(ConsilienceError, match=r"method 'concat' is registered twice: Concat and .*Another"):

        @methods.register("concat")
        class Another(Method):
            pass


@pytest.mark.usefixtures("scratch")
def test_a_method_of_the_users_joins_by_registering():
    @methods.register("mine-2", paper="Me, Mine", equation="1")
    class Mine(Method):
        def __init__(self, spec, *, depth: int = 1):
            super().__init__(spec)
            self.depth = depth

    assert methods.registry()["mine-2"] is Mine
    assert (Mine.name, Mine.paper, Mine.equation) == ("mine-2", "Me, Mine", "1")
    assert methods.build("mine-2", SPEC, {"depth": 3}).depth == 3
    with pytest.raises(UnknownNameError, match="did you mean 'mine-2'"):
        methods.find("mine2")


@pytest.mark.parametrize("name", ["concat", "late", "align", "best-unimodal", "unimodal:temp.1"])
def test_odd_modality_names_serve_every_method(name):
    modalities = {"keys": Modality("keys", "vector", (2,)), "temp.1": Modality("temp.1", "vector", (3,))}
    method = methods.build(name, Spec(modalities, CLASSES))
    assert method(batch_of(modalities=modalities)).output.shape == (6, 3)
