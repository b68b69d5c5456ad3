"""What the doctor says of the ways to API, database and broker."""

from __future__ import annotations

import pytest
from pydantic import SecretStr

from controller.cli.doctor.encryption import encryption_findings
from controller.settings import ControllerSettings


def judged(
    api: str = "http://127.0.0.1:8732", env: dict[str, str] | None = None, **urls: str
) -> dict[str, tuple[bool, str]]:
    settings = ControllerSettings(**{name: SecretStr(url) for name, url in urls.items()})
    return {
        about: (well, said) for about, well, said in encryption_findings(settings, [api], env or {})
    }


@pytest.mark.parametrize(
    ("url", "well"),
    [
        ("https://fuga.example.org", True),
        ("http://127.0.0.1:8732", True),
        ("http://[::1]:8732", True),
        ("http://fuga.example.org", False),
        ("http://192.0.2.1:8732", False),
    ],
)
def test_the_way_to_the_api(url: str, well: bool):
    assert judged(url)["connection to API"][0] is well


@pytest.mark.parametrize(
    ("url", "well", "said"),
    [
        ("postgresql://f:s3cret@db/f?sslmode=verify-full", True, "name verified"),
        ("postgresql://f:s3cret@db/f?sslmode=verify-ca", False, "any server"),
        ("postgresql://f:s3cret@db/f?sslmode=require", False, "any server"),
        ("postgresql://f:s3cret@db/f?sslmode=prefer", False, "not encrypted"),
        ("postgresql://f:s3cret@db/f", False, "not encrypted"),
        ("postgresql://f:s3cret@127.0.0.1/f", True, "local to this machine"),
        ("postgresql+psycopg://f@/f?host=/run/postgresql", True, "local to this machine"),
        ("sqlite:////var/lib/fuga.db", True, "a local file"),
    ],
)
def test_the_way_to_the_database(url: str, well: bool, said: str):
    found = judged(database_url=url)["connection to database"]

    assert found[0] is well
    assert said in found[1]
    assert "s3cret" not in str(found)


def test_what_libpq_reads_from_the_environment_counts():
    env = {"PGSSLMODE": "verify-full"}

    assert judged(env=env, database_url="postgresql://f@db/f")["connection to database"][0]


@pytest.mark.parametrize(
    ("url", "well"),
    [
        ("rediss://:s3cret@mq/0", True),
        ("rediss://:s3cret@mq/0?ssl_cert_reqs=none", False),
        ("rediss://:s3cret@mq/0?ssl_check_hostname=false", False),
        ("redis://:s3cret@mq/0", False),
        ("redis://127.0.0.1/0", True),
    ],
)
def test_the_way_to_the_broker(url: str, well: bool):
    found = judged(broker_url=url)

    assert found["connection to broker"][0] is well
    assert "s3cret" not in str(found)


def test_a_broker_without_a_password_is_anybodys():
    assert judged(broker_url="rediss://mq/0")["broker"][0] is False
