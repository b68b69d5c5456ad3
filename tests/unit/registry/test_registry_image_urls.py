"""From where images may be fetched."""

from __future__ import annotations

import pytest

from registry import ImageUrlRefusedError
from registry.images import check_image_url

ALLOWED = {"https://cloud.example.org/images/", "http://127.0.0.1:8080/pub"}


@pytest.mark.parametrize(
    "url",
    [
        "https://cloud.example.org/images/debian.qcow2",
        "https://cloud.example.org:443/images/deep/er/debian.qcow2",
        "https://CLOUD.example.org/images/debian.qcow2",
        "http://127.0.0.1:8080/pub",
        "http://127.0.0.1:8080/pub/debian.raw",
    ],
)
def test_what_lies_within_the_list_is_fetched(url: str) -> None:
    assert check_image_url(url, ALLOWED) == url


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://cloud.example.org/images/debian.qcow2", "not within"),
        ("https://cloud.example.org/other/debian.qcow2", "not within"),
        ("https://cloud.example.org/imagesevil/debian.qcow2", "not within"),
        ("https://cloud.example.org.evil.net/images/debian.qcow2", "not within"),
        ("https://cloud.example.org:8443/images/debian.qcow2", "not within"),
        ("http://127.0.0.1:8080/public", "not within"),
        ("http://127.0.0.1/pub/x", "not within"),
        ("https://cloud.example.org@evil.net/images/x", "user name"),
        ("https://u:p@cloud.example.org/images/x", "user name"),
        ("https://cloud.example.org/images/../secret", "elsewhere"),
        ("https://cloud.example.org/images/%2e%2e/secret", "elsewhere"),
        ("https://cloud.example.org/images/..%2fsecret", "elsewhere"),
        ("https://cloud.example.org/images\\..\\secret", "elsewhere"),
        ("https://cloud.example.org/images/%252e%252e/secret", "elsewhere"),
        ("https://cloud.example.org/images/%25252e%25252e/secret", "elsewhere"),
        ("https://cloud.example.org/images/..;/secret", "elsewhere"),
        ("https://cloud.example.org/images/..;a=b/secret", "elsewhere"),
        ("https://cloud.example.org/images/..%3b/secret", "elsewhere"),
        ("https://cloud.example.org/images/..%5Csecret", "elsewhere"),
        ("https://cloud.example.org/images/%c0%ae%c0%ae/secret", "elsewhere"),
        ("https://cloud.example.org/images/x%00.qcow2", "elsewhere"),
        ("https://cloud.example.org/images/x%0d%0a", "elsewhere"),
        ("https://cloud.example.org/images/x%3fredirect", "elsewhere"),
        ("https://cloud.example.org/images/x%23y", "elsewhere"),
        ("https://cloud.example.org/images/%2", "elsewhere"),
        ("https://cloud.example.org/images/%zz", "elsewhere"),
        ("https://cloud.example.org/images/x?redirect=http://evil.net", "query"),
        ("https://cloud.example.org/images/x#y", "fragment"),
        ("file:///etc/shadow", "http://HOST"),
        ("ftp://cloud.example.org/images/x", "http://HOST"),
        ("https:///images/x", "http://HOST"),
        ("https://cloud.example.org:x/images/", "."),
        ("https://cloud.example.org/images/ä", "ASCII"),
        ("https://cloud.example.org/images/\nx", "ASCII"),
        ("https://cloud.example.org/images/" + "x" * 500, "ASCII"),
        ("", "ASCII"),
    ],
)
def test_what_leads_out_of_it_is_refused(url: str, reason: str) -> None:
    with pytest.raises(ImageUrlRefusedError, match=reason):
        check_image_url(url, ALLOWED)


def test_without_a_list_nothing_is_fetched() -> None:
    with pytest.raises(ImageUrlRefusedError, match="FUGA_IMAGE_URLS is empty; list"):
        check_image_url("https://cloud.example.org/images/debian.qcow2", ())
