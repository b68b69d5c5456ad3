"""Each mutant can still be made; `make mutants` shows that each is killed."""

from __future__ import annotations

import ast

import pytest

from tests.mutants.listed import ROOT, Mutant, listed

MUTANTS = listed()


@pytest.mark.parametrize("mutant", MUTANTS, ids=[each.means for each in MUTANTS])
def test_it_can_be_made_and_its_tests_are_there(mutant: Mutant):
    text = (ROOT / mutant.file).read_text()

    changed = mutant.applied_to(text)

    assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(text))
    assert all((ROOT / test.partition("::")[0]).exists() for test in mutant.tests)
