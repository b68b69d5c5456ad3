"""What `fuga request --user-data` says of files that cloud-init ignores."""

from __future__ import annotations

import base64
import gzip
from pathlib import Path

import pytest

from controller.cli.vms.keys import read_user_data

CONFIG = b"#cloud-config\npackages: [nginx]\n"


@pytest.mark.parametrize(
    ("content", "warning"),
    [
        (CONFIG, ""),
        (b"\n" + CONFIG, ""),
        (b"#!/bin/sh\ntrue\n", ""),
        (b"#include\nhttps://example.org/a\n", ""),
        (b"## template: jinja\n" + CONFIG, ""),
        (b"Content-Type: multipart/mixed; boundary=x\nMIME-Version: 1.0\n\n--x--\n", ""),
        (gzip.compress(CONFIG, mtime=0), ""),
        (b"#cloud-config\nusers:\n  - default\n  - &a {name: b}\n  - *a\n", ""),
        (b"#cloud-config-archive\n- type: text/x-shellscript\n  content: true\n", ""),
        (b"#cloud-config\npackages: [nginx\nusers: []\n", "no YAML in line 3, column"),
        (b"#cloud-config\nusers:\n\t- default\n", "no YAML in line 3, column 1"),
        (b"#cloud-config\n- default\n", "no settings"),
        (b"#cloud-config\nnginx\n", "no settings"),
        (b"#cloud-config\na: \xff\n", "not UTF-8 at byte 17"),
        (b"#cloud-config\na: \x07\n", "no YAML"),
        (b"#cloud-config\n" + b"[" * 60000, "nested more than 100 deep"),
        (b"packages: [nginx]\n", "first lines"),
        (b"# cloud-config\n", "first lines"),
        (b"", "first lines"),
        (b"\xef\xbb\xbf" + CONFIG, "byte order mark"),
        ("#cloud-config".encode("utf-16"), "first lines"),
    ],
)
def test_what_cloud_init_will_ignore_is_sent_with_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, warning: str
) -> None:
    path = tmp_path / "user-data"
    path.write_bytes(content)

    sent = read_user_data(path)

    assert base64.b64decode(sent) == content
    said = capsys.readouterr().err
    assert warning in said
    assert bool(said) is bool(warning)
