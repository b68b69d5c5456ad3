"""A loop runs compiled only if the compiled form is of the same source."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from controller.cli.doctor.loops import loop_findings
from placement.fuga import exchange_loop
from placement.packing import compiled_loops as forms
from placement.packing.compiled_loops import Loop, LoopForm, compiled_form, loops, source_digest


@pytest.fixture
def source(tmp_path, monkeypatch):
    """Return the source of a loop, `placement.fuga.of_a_test`, of which no compiled form exists."""
    path = tmp_path / "of_a_test.py"
    path.write_text("def double(value):\n    return 2 * value\n")
    path.with_suffix(".pxd").write_text("cdef double(long long value)\n")
    module = ModuleType("placement.fuga.of_a_test")
    module.__file__ = str(path)
    exec(path.read_text(), module.__dict__)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(forms, "LOOPS", (module.__name__,))
    return path


@pytest.fixture
def compiled(source, monkeypatch):
    """Return a module that stands for the compiled form of that source."""
    module = ModuleType("placement.compiled.of_a_test")
    module.__dict__.update(double=lambda value: value + value, SOURCE_DIGEST=source_digest(source))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


def plain():
    return sys.modules["placement.fuga.of_a_test"].double


def test_without_a_compiled_form_the_source_runs(source):
    assert compiled_form(plain()) is plain()
    assert loops() == [Loop("of_a_test", LoopForm.PLAIN)]


def test_a_compiled_form_of_the_same_source_runs(compiled):
    assert compiled_form(plain()) is compiled.double
    assert loops() == [Loop("of_a_test", LoopForm.COMPILED)]


@pytest.mark.parametrize("suffix", [".py", ".pxd"])
def test_an_edited_source_runs_instead_of_what_was_compiled_before(source, compiled, suffix):
    edited = source.with_suffix(suffix)
    edited.write_text(edited.read_text() + "\n")

    assert compiled_form(plain()) is plain()
    assert loops() == [Loop("of_a_test", LoopForm.STALE)]


def test_every_loop_has_a_source_and_its_types():
    assert exchange_loop.__name__ in forms.LOOPS
    assert all(each.form in LoopForm for each in loops())


@pytest.mark.parametrize(
    ("form", "note", "says"),
    [
        (LoopForm.COMPILED, False, "of_a_test runs as compiled code"),
        (LoopForm.PLAIN, True, "where a C compiler is"),
        (LoopForm.STALE, True, "make install"),
    ],
)
def test_the_doctor_says_which_form_runs(form, note, says):
    [found] = loop_findings([Loop("of_a_test", form)])

    assert found.well
    assert found.note is note
    assert says in found.message
