"""What somebody may have meant who typed a name that there is not."""

from __future__ import annotations

from plain_text import advice, listed, nearest


def test_the_likeliest_name_is_the_first() -> None:
    names = ["large", "medium", "small", "tiny"]

    assert nearest("smal", names) == ["small"]
    assert nearest("SMALL", names) == ["small"]
    assert advice("smal", names) == "did you mean small?"


def test_of_few_names_all_are_told_and_of_many_none_that_is_not_like_it() -> None:
    assert advice("huge", ["b", "a"]) == "known: a and b"
    assert advice("huge", ["a"]) == "known: a"
    assert advice("huge", [f"host-{n}" for n in range(9)]) is None
    assert advice("huge", []) is None


def test_of_thousands_of_names_few_are_compared() -> None:
    names = [f"kvm-{n:05}" for n in range(12_500)]

    assert nearest("kvm-00017x", names)[0].startswith("kvm-0001")
    assert nearest("nothing-like-it", names) == []


def test_names_of_others_are_harmless_to_look_at() -> None:
    assert advice("weeb", ["web\x1b[2J"]) == "known: web\\x1b[2J"


def test_names_are_listed_as_in_a_sentence() -> None:
    assert listed(["a"], "or") == "a"
    assert listed(["a", "b", "c"], "or") == "a, b or c"
