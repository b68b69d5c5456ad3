"""What looks like a secret does not get into logs."""

from __future__ import annotations

import io
import logging

import pytest
import structlog

from registry import InvalidError
from registry.db.masking import mask_secrets
from service.broker.url import broker_config
from service.logs import configure_logging
from tests.unit.registry.test_registry_logs import _logging_as_before  # noqa: F401

TOKEN = "fuga_" + "aB3-_" * 8 + "xyz"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("postgresql://fuga:s3cret@db/fuga", "postgresql://fuga:***@db/fuga"),
        ("rediss://:s3cret@h:6379/0?x=1", "rediss://:***@h:6379/0?x=1"),
        (f"Authorization: Bearer {TOKEN}", "Authorization: Bearer ***"),
        (f"token {TOKEN}.", "token fuga_***."),
        ("host=db password=s3cret sslpassword=other", "host=db password=*** sslpassword=***"),
        ("https://db.example.org/a:b@c", "https://db.example.org/a:b@c"),
        ("qemu+tls://host/system", "qemu+tls://host/system"),
        ("fuga_tests and fuga_rounds", "fuga_tests and fuga_rounds"),
    ],
)
def test_secrets_are_masked_and_the_rest_stays(text: str, left: str) -> None:
    assert mask_secrets(text) == left


def fail(secret: str, url: str) -> None:
    raise RuntimeError(f"with {url} as {len(secret)}")


@pytest.mark.parametrize("form", ["json", "text"])
def test_logs_are_masked_whoever_writes_them(form: str) -> None:
    stream = io.StringIO()
    configure_logging("info", stream, form=form)  # type: ignore[arg-type]
    url = "postgresql://fuga:s3cret@db/fuga"
    structlog.get_logger().info("started", database=url, nested={"tokens": [TOKEN]})
    logging.getLogger("library").error("cannot connect to %s", url)
    try:
        fail(TOKEN, url)
    except RuntimeError:
        structlog.get_logger().exception("failed")

    said = stream.getvalue()
    assert "s3cret" not in said
    assert TOKEN not in said
    assert said.count("***") >= 4


def test_a_broker_s_certificate_is_checked_unless_its_url_says_otherwise() -> None:
    checked = broker_config("rediss://:pw@h:6379/0?ssl_ca_certs=/ca.pem&health_check_interval=5")
    unchecked = broker_config("rediss://h/0?ssl_cert_reqs=none")

    assert checked["broker_url"] == "rediss://:pw@h:6379/0?health_check_interval=5"
    assert checked["broker_use_ssl"]["ssl_ca_certs"] == "/ca.pem"
    assert checked["broker_use_ssl"]["ssl_cert_reqs"].name == "CERT_REQUIRED"
    assert checked["broker_use_ssl"]["ssl_check_hostname"] is True
    assert unchecked["broker_use_ssl"]["ssl_cert_reqs"].name == "CERT_NONE"
    assert "broker_use_ssl" not in broker_config("redis://h/0")


@pytest.mark.parametrize(
    "url",
    [
        "redis://:s3cret@h/0?ssl_ca_certs=/ca.pem",
        "rediss://:s3cret@h/0?ssl_cert_reqs=perhaps",
        "rediss://:s3cret@h/0?ssl_cafile=/ca.pem",
    ],
)
def test_what_means_nothing_of_tls_is_refused(url: str) -> None:
    with pytest.raises(InvalidError, match="broker_url") as refused:
        broker_config(url)

    assert "s3cret" not in str(refused.value)
