"""Every kind of error that a user can meet: its class, and one line that names the thing."""

from __future__ import annotations

import pytest
from support.error_kinds import KINDS, assert_as_expected, met


@pytest.mark.parametrize("name", KINDS)
def test_an_error_has_a_class_and_a_line(spark, tmp_path, name):
    assert_as_expected(name, *met(spark, name, tmp_path / "kind"))
