"""What somebody may have meant who typed a name that there is not."""

from __future__ import annotations

from plain_text import join_names, similar_names, suggest_names


def test_the_likeliest_name_is_the_first() -> None:
    names = ["large", "medium", "small", "tiny"]

    assert similar_names("smal", names) == ["small"]
    assert similar_names("SMALL", names) == ["small"]
    assert suggest_names("smal", names) == "did you mean small?"


def test_of_few_names_all_are_told_and_of_many_none_that_is_not_like_it() -> None:
    assert suggest_names("huge", ["b", "a"]) == "known: a and b"
    assert suggest_names("huge", ["a"]) == "known: a"
    assert suggest_names("huge", [f"host-{n}" for n in range(9)]) is None
    assert suggest_names("huge", []) is None


def test_of_thousands_of_names_few_are_compared() -> None:
    names = [f"kvm-{n:05}" for n in range(12_500)]

    assert similar_names("kvm-00017x", names)[0].startswith("kvm-0001")
    assert similar_names("nothing-like-it", names) == []


def test_names_of_others_are_harmless_to_look_at() -> None:
    assert suggest_names("weeb", ["web\x1b[2J"]) == "known: web\\x1b[2J"


def test_names_are_listed_as_in_a_sentence() -> None:
    assert join_names(["a"], "or") == "a"
    assert join_names(["a", "b", "c"], "or") == "a, b or c"
