from __future__ import annotations

import gc

import pytest

from controller.rounds.round import gc_disabled


def test_cycles_are_searched_for_again_after_the_block_however_it_ends() -> None:
    assert gc.isenabled()
    with gc_disabled():
        assert not gc.isenabled()
    assert gc.isenabled()

    with pytest.raises(RuntimeError), gc_disabled():
        raise RuntimeError
    assert gc.isenabled()


def test_who_had_turned_the_search_off_finds_it_off() -> None:
    gc.disable()
    try:
        with gc_disabled():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
