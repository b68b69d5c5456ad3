from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry import UriRefusedError
from registry.hosts import DEFAULT_URI_POLICY, UriPolicy, check_uri

LOCAL = UriPolicy(
    schemes=frozenset({"qemu", "qemu+unix", "test", "qemu+ssh", "qemu+tcp"}),
    parameters=frozenset({"socket", "keyfile"}),
)


@pytest.mark.parametrize(
    "uri",
    [
        "qemu+tls://host1.example/system",
        "qemu+ssh://root@10.0.0.7/system",
        "qemu+ssh://root@host:2222/system",
        "qemu+libssh://fuga@host/system",
        "qemu+libssh2://host/system",
        "qemu+tls://[fe80::1]:16514/system",
        "qemu+tls://host_1/session",
    ],
)
def test_plain_remote_uris_are_let_in(uri: str) -> None:
    assert check_uri(uri, DEFAULT_URI_POLICY) == uri


@pytest.mark.parametrize(
    ("uri", "reason"),
    [
        ("", "scheme"),
        ("qemu:///system", "scheme 'qemu' is not allowed"),
        ("qemu+unix:///system", "scheme"),
        ("qemu+ext://host/system", "scheme"),
        ("qemu+tcp://host/system", "anyone who reaches the port is root on the host"),
        ("qemu+tcp://127.0.0.1/system", "anyone who reaches the port is root on the host"),
        ("test+tcp://host/default", "scheme"),
        ("QEMU+SSH://host/system", "scheme"),
        ("test:///default", "scheme"),
        ("xen+ssh://host/", "scheme"),
        ("http://host/", "scheme"),
        ("/etc/passwd", "scheme"),
        ("qemu+ssh://host/system?command=/bin/sh", "parameter 'command'"),
        ("qemu+ssh://host/system?netcat=/tmp/x", "parameter 'netcat'"),
        ("qemu+ssh://host/system?a=1;netcat=/tmp/x", "parameter 'a'"),
        ("qemu+ssh://host/system?net%63at=x", "parameter 'netcat'"),
        ("qemu+ssh://host/system?no_verify", "parameter 'no_verify'"),
        ("qemu+ssh://host/system?&", "empty parameter"),
        ("qemu+ssh:///system", "no host"),
        ("qemu+ssh://root@/system", "no host"),
        ("qemu+tls:/system", "no host"),
        ("qemu+ssh://-oProxyCommand=x/system", "starts with '-'"),
        ("qemu+ssh://root@-oProxyCommand/system", "starts with '-'"),
        ("qemu+ssh://-oProxyCommand@host/system", "user name"),
        ("qemu+ssh://root:secret@host/system", "password"),
        ("qemu+ssh://@host/system", "user name"),
        ("qemu+ssh://host$(id)/system", "neither a name nor an address"),
        ("qemu+ssh://host;id/system", "neither a name nor an address"),
        ("qemu+ssh://ho%73t/system", "neither a name nor an address"),
        ("qemu+ssh://host/system#x", "fragment"),
        ("qemu+ssh://host/system#", "fragment"),
        ("qemu+ssh://host:99999/system", "[Pp]ort"),
        ("qemu+ssh://host:x/system", "[Pp]ort"),
        ("qemu+ssh://host:0/system", "port 0"),
        ("qemu+ssh://[::1/system", "Invalid"),
        ("qemu+ssh://host/sys\ntem", "control"),
        ("qemu+ssh://host/sys\x00tem", "control"),
        ("qemu+ssh://host/sys tem", "spaces"),
        ("qemu+ssh://hóst/system", "ASCII"),
        ("qemu+ssh://host\\@evil/system", "unescaped"),
        ("qemu+ssh://host/%2e%2e", "path"),
        ("qemu+ssh://host//system", "path"),
        ("qemu+ssh://host/../system", "path"),
        ("qemu+ssh://host/=", "path"),
        ("qemu+ssh://host/system/", "without its last slash"),
        ("qemu+ssh://" + "a" * 2000 + "/system", "longer"),
    ],
)
def test_what_could_run_programs_or_mislead_is_refused(uri: str, reason: str) -> None:
    with pytest.raises(UriRefusedError, match=reason):
        check_uri(uri, DEFAULT_URI_POLICY)


def test_a_password_is_not_repeated_in_the_error() -> None:
    with pytest.raises(UriRefusedError) as caught:
        check_uri("qemu+ssh://root:hunter2@host/system")

    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "uri",
    [
        "qemu:///system",
        "test:///default",
        "qemu+unix:///system?socket=/run/a.sock",
        "qemu+tcp://10.0.0.1/system",
    ],
)
def test_an_operator_may_allow_local_schemes_and_parameters(uri: str) -> None:
    assert check_uri(uri, LOCAL) == uri


def test_an_allowed_parameter_does_not_let_another_in() -> None:
    with pytest.raises(UriRefusedError, match="'command'"):
        check_uri("qemu+unix:///system?socket=/run/a.sock&command=sh", LOCAL)


def test_an_allowed_parameter_carries_no_escaped_control_character() -> None:
    with pytest.raises(UriRefusedError, match="control character"):
        check_uri("qemu+unix:///system?socket=/run/a%0Ab", LOCAL)


@given(st.text(max_size=80))
def test_any_text_is_either_returned_as_it_is_or_refused(text: str) -> None:
    try:
        found = check_uri(text)
    except UriRefusedError:
        return

    assert found == text
    assert found.startswith("qemu+")


@given(st.text(alphabet="-/:@?#&=;%.[]qemu+sh%0a\n", max_size=40))
def test_no_tail_smuggles_a_parameter_in(tail: str) -> None:
    try:
        check_uri(f"qemu+ssh://host{tail}")
    except UriRefusedError:
        return

    assert "?" not in tail.rstrip("?")
    assert "=" not in tail
