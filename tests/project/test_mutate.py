"""`guards broken`: it finds guards, and distinguishes mutants that tests notice from survivors."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.checks.guards import broken, sites

ERRORS = '''
class RefusedError(Exception):
    """What the package raises."""
'''
RULES = '''
"""Rules of a shop."""

from __future__ import annotations

from shop.errors import RefusedError

Reason = tuple[str, bool]


def check_price(price: int) -> None:
    if price < 0 or price > 100:
        raise RefusedError(f"price {price}")


def sell(price: int, stock: dict[str, int]) -> int:
    check_price(price)
    if not stock:
        return 0
    return price * len(stock)


def is_cheap(price: int) -> bool:
    return price < 10


def reasons(amount: int) -> list[Reason]:
    return [("below_0", amount < 0), ("odd", amount % 2 == 1)]
'''
TESTS = """
import pytest

from shop.errors import RefusedError
from shop.rules import is_cheap, reasons, sell


@pytest.fixture(scope="module")
def sold():
    return sell(5, {"tea": 1, "milk": 2})


def test_two_things_cost_twice_the_price(sold):
    assert sold == 10


def test_a_shop_without_stock_sells_nothing():
    assert sell(100, {}) == 0


def test_a_price_below_0_is_refused():
    with pytest.raises(RefusedError):
        sell(-1, {"tea": 1})


def test_what_is_cheap():
    assert is_cheap(9) and not is_cheap(10)


def test_an_odd_amount_is_bad():
    assert ("odd", True) in reasons(3)
"""
FOUND = {
    "check_price: negated: price < 0 or price > 100",
    "check_price: left out: price < 0 or price > 100",
    "check_price: operand: price < 0",
    "check_price: operand: price > 100",
    "sell: dropped: check_price(price)",
    "sell: negated: not stock",
    "is_cheap: negated: price < 10",
    "reasons: dropped: ('below_0', amount < 0)",
    "reasons: dropped: ('odd', amount % 2 == 1)",
}
UNNOTICED = {"check_price: operand: price > 100", "reasons: dropped: ('below_0', amount < 0)"}
TOPICS = {"prices": broken.Topic(("rules.py",), ("tests/test_shop.py",))}


def make_shop(folder: Path) -> Path:
    """Make a package of one module, with tests that do not notice everything."""
    files = {"shop/__init__.py": "", "shop/errors.py": ERRORS, "shop/rules.py": RULES, "tests/test_shop.py": TESTS}
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def test_guards_keep_their_names_when_code_moves():
    package = sites.Package.of([RULES], ERRORS)
    moved = "import math\n\n\n" + RULES.replace('"""Rules of a shop."""', "")
    for source in (RULES, moved):
        _, mutants = sites.insert_switches(source, package, "shop")
        assert {mutant.key for mutant in mutants} == FOUND


def test_name_of_a_guard_does_not_depend_on_its_text():
    package, actual = sites.Package.of([RULES], ERRORS), []
    code = "def sell(price):\n{text}    if price < 0:\n        raise {error}\n    return {price}\n"
    for text, price in (("", "price"), ('    """Sell."""\n', "price"), ('    """Sell it."""\n', "2 * price")):
        source = code.format(text=text, price=price, error="RefusedError('no')")
        _, mutants = sites.insert_switches(source, package, "shop")
        actual.append({mutant.source for mutant in mutants})
    assert actual[0] == actual[1] != actual[2]
    assert all(actual)


def test_a_guard_that_comes_twice_has_two_names():
    package = sites.Package.of([RULES], ERRORS)
    again = RULES.replace("    check_price(price)\n", "    check_price(price)\n    check_price(price)\n")
    _, mutants = sites.insert_switches(again, package, "shop")
    assert {"sell: dropped: check_price(price)", "sell (2): dropped: check_price(price)"} < {
        mutant.key for mutant in sites.number_mutants(mutants).values()
    }


@pytest.mark.slow
def test_guards_broken_reports_caught_and_surviving_mutants(tmp_path, capsys):
    folder, results = make_shop(tmp_path / "shop"), tmp_path / "results"
    mutants = broken.prepare_copy(folder, "shop", TOPICS, "shop/errors.py")
    runner = broken.Runner(folder, "shop", ["tests/test_shop.py"])
    numbers = broken.select_mutants(mutants, list(TOPICS), "", None, 0)
    try:
        for n in (4, None):  # the second call goes on where the first has ended
            hunt = broken.Hunt(mutants, TOPICS, runner, broken.Kept(results), 60)
            broken.hunt(hunt, numbers[:n], deadline=float("inf"))
    finally:
        runner.end()
    assert capsys.readouterr().out.count("recorded tests/test_shop.py") == 1
    stored = broken.Kept(results).mutants
    assert results.read_text().count('"mutant"') == len(stored) == len(FOUND)
    assert {key for key, mutant in stored.items() if mutant["verdict"] == "survived"} == UNNOTICED
    by = {key: mutant["by"].partition("::")[2] for key, mutant in stored.items() if mutant["verdict"] == "caught"}
    assert by["sell: negated: not stock"] in (
        "test_two_things_cost_twice_the_price",  # the fixture that is shared passes it
        "test_a_shop_without_stock_sells_nothing",
    )
    assert by["check_price: left out: price < 0 or price > 100"] == "test_a_price_below_0_is_refused"

    text, is_well = broken.format_summary(list(mutants.values()), stored, dict.fromkeys(UNNOTICED, "nobody buys it"))
    assert "| all | 9 | 9 | 7 | 0 | 2 | 2 | 77.8% |" in text
    assert not is_well  # each survivor has a reason, but there are too many


@pytest.mark.slow
def test_a_mutant_that_makes_a_test_hang_is_ended(tmp_path, monkeypatch):
    folder = make_shop(tmp_path / "shop")
    hanging = RULES.replace("return price * len(stock)", "return price * len(stock)\n\n\ndef wait(price):\n    pass")
    hanging = hanging.replace("    pass", "    while True:\n        if price:\n            return")
    (folder / "shop" / "rules.py").write_text(hanging)
    test = "from shop.rules import wait\n\n\ndef test_waiting():\n    wait(1)\n"
    (folder / "tests" / "test_shop.py").write_text(test)
    # stands in for: limits of time, because a test cannot wait for a minute
    monkeypatch.setattr(broken.Runner, "patience", 1)
    # stands in for: limits of time, because a test cannot wait for a minute
    monkeypatch.setattr(broken.Runner, "start_up", 5)
    mutants = broken.prepare_copy(folder, "shop", TOPICS, "shop/errors.py")
    runner = broken.Runner(folder, "shop", ["tests/test_shop.py"])
    results = broken.Kept(tmp_path / "results")
    try:
        numbers = broken.select_mutants(mutants, list(TOPICS), "wait: negated", None, 0)
        broken.hunt(broken.Hunt(mutants, TOPICS, runner, results, 60), numbers, deadline=float("inf"))
    finally:
        runner.end()
    assert [row["verdict"] for row in results.mutants.values()] == ["timeout"]


@pytest.mark.slow
def test_leftovers_of_a_mutant_do_not_count_as_its_failure(tmp_path):
    """Example: a session that it stopped, or a claim that stays: the test then fails without the mutant, too."""
    folder = make_shop(tmp_path / "shop")
    coming_in = "\n\ninside = []\n\n\ndef come_in(price):\n    check_price(price)\n    inside.append(price)\n"
    (folder / "shop" / "rules.py").write_text(RULES + coming_in)
    test = "import pytest\nfrom shop.rules import RefusedError, come_in, inside\n\n\ndef test_nobody_comes_in():\n"
    test += "    with pytest.raises(RefusedError):\n        come_in(-1)\n    assert inside == []\n"
    (folder / "tests" / "test_shop.py").write_text(test)
    mutants = broken.prepare_copy(folder, "shop", TOPICS, "shop/errors.py")
    runner = broken.Runner(folder, "shop", ["tests/test_shop.py"])
    results = broken.Kept(tmp_path / "results")
    try:
        numbers = broken.select_mutants(mutants, list(TOPICS), "come_in: dropped", None, 0)
        broken.hunt(broken.Hunt(mutants, TOPICS, runner, results, 60), numbers, deadline=float("inf"))
    finally:
        runner.end()
    assert [row["verdict"] for row in results.mutants.values()] == ["caught"]


def test_a_module_or_a_test_file_that_is_not_there_is_named(tmp_path):
    folder = make_shop(tmp_path)
    for topic, named in (
        (broken.Topic(("rules.py",), ("tests/test_gone.py",)), "tests/test_gone.py"),
        (broken.Topic(("gone/*.py",), ("tests/test_shop.py",)), "gone/"),
    ):
        with pytest.raises(LookupError, match=named):
            broken.prepare_copy(folder, "shop", {"prices": topic}, "shop/errors.py")


def test_files_of_topics_exist():
    for topic in broken.TOPICS.values():
        assert [test for test in topic.tests if not (broken.ROOT / test).is_file()] == []
        assert [module for module in topic.modules if not list((broken.ROOT / broken.NAME).glob(module))] == []
