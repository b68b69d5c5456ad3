"""The patterns of text that the API accepts, each with its description."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from controller.settings import FAILURE_DOMAIN
from registry.rounds import MAX_REASON_LENGTH

KEY: Final = r"^[A-Za-z0-9]([A-Za-z0-9._/-]{0,61}[A-Za-z0-9])?$"
VALUE: Final = r"^[A-Za-z0-9]([A-Za-z0-9._:/@+-]{0,61}[A-Za-z0-9])?$"
USAGE_GROUPING: Final = f"^(tenant|group|type|label:{KEY[1:-1]})$"
PRICE: Final = r"^[0-9]{1,10}(\.[0-9]{1,15})?$"
CURRENCY: Final = r"^[A-Za-z][A-Za-z0-9-]{0,15}$"
DAY: Final = r"^20[0-9]{2}-[01][0-9]-[0-3][0-9]$"
HOST_CLASS: Final = r"^(no labels|[A-Za-z0-9._:/=,-]+)$"
MONTH: Final = r"^20[0-9]{2}-(0[1-9]|1[0-2])$"
BUDGET: Final = r"^[0-9]{1,13}(\.[0-9]{1,6})?$"
COST: Final = r"^-?[0-9]{1,13}(\.[0-9]{1,6})?$"
LABEL_FILTER: Final = f"{KEY[:-1]}={VALUE[1:]}"
REFERENCE: Final = r"^[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?(:[0-9]{1,9})?$"
NAME: Final = r"^[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?$"
USAGE_NAME: Final = rf"^(borrowed:)?{NAME[1:]}"
VM_NAME: Final = r"^[a-z0-9._-]{1,80}$"
PART_OF_NAME: Final = r"^[A-Za-z0-9._-]{1,63}$"
HOST_LABEL: Final = r"^[A-Za-z0-9]([A-Za-z0-9._:/=-]{0,126}[A-Za-z0-9])?$"
SELECTOR: Final = f"{NAME[:-1]}$|^label={HOST_LABEL[1:]}"
LIBVIRT_NAME: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"
URI: Final = r"^[!-~]{1,500}$"
CURSOR: Final = URI
ADDRESS: Final = r"^[0-9./-]{1,40}$"
REASON: Final = r"^[^\x00-\x1f\x7f]+$"
ONE_LINE: Final = r"^[^\x00-\x1f\x7f]{1,500}$"
BASE64: Final = r"^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
FENCE_TARGET: Final = r"^[!-,.-~]([ -~]{0,253}[!-~])?$"
FENCE_TARGET_OR_NONE: Final = r"^([!-,.-~]([ -~]{0,253}[!-~])?)?$"
SHA256: Final = r"^[0-9a-f]{64}$"
#: minisign sets tabs in its trusted comment, which people write in their own language.
SIGNATURE: Final = r"^([ -~\t\r\n]|[^\x00-\x9f]){1,4096}$"
PRINTABLE: Final = r"^[ -~]{1,255}$"
SOURCE: Final = r"^[^\x00-\x1f\x7f-\x9f]{1,255}$"  #: names of files, in any language
SUBJECT: Final = r"^[!-~]{1,80}$"
EVENT_KIND: Final = r"^[a-z0-9_.]{1,64}$"
UNIT: Final = r"^[!-~]([ -~]*[!-~])?$"
HTTP_REQUEST_ID: Final = r"^[A-Za-z0-9._-]{1,64}$"
IDEMPOTENCY_KEY: Final = r"^[!-~]{1,200}$"
MOMENT: Final = (
    r"^20[0-9]{2}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9]"
    r"(\.[0-9]{1,6})?(Z|[+-][01][0-9]:[0-5][0-9])$"
)

_ENDS: Final = "first and last a letter or digit"
_KEY: Final = f"1 to 63 letters, digits and . _ / -, {_ENDS}"
_VALUE: Final = f"1 to 63 letters, digits and . _ : / @ + -, {_ENDS}"
_FENCE_TARGET: Final = "1 to 255 printable characters, the first no '-', no blanks at its ends"
PATTERNS_SAID: Final[Mapping[str, str]] = MappingProxyType(
    {
        KEY: _KEY,
        VALUE: _VALUE,
        LABEL_FILTER: "KEY=VALUE, as in labels of requests and VMs",
        REFERENCE: "NAME or NAME:REVISION of an image",
        NAME: f"1 to 63 of a-z, 0-9, '.', '_', '-', {_ENDS}",
        USAGE_NAME: "the name of a resource, such as vcpus, or borrowed:vcpus",
        VM_NAME: "a VM's name, 1 to 80 of a-z, 0-9, '.', '_', '-'",
        PART_OF_NAME: "a part of a name in any case, 1 to 63 of A-Z, a-z, 0-9, '.', '_', '-'",
        HOST_LABEL: f"1 to 128 letters, digits and . _ : / = -, {_ENDS}",
        SELECTOR: "the name of a host, label=LABEL, or all",
        LIBVIRT_NAME: "1 to 128 letters, digits and . _ -, the first a letter or digit",
        URI: "1 to 500 printable characters without blanks",
        ADDRESS: "IPv4 in digits, such as 10.0.0.9, 10.0.0.0/24 or 10.0.0.2-10.0.0.9",
        REASON: f"1 to {MAX_REASON_LENGTH} characters on one line",
        ONE_LINE: "1 to 500 characters on one line",
        BASE64: "base64 of at most 65536 bytes",
        FENCE_TARGET: _FENCE_TARGET,
        FENCE_TARGET_OR_NONE: f"{_FENCE_TARGET}, or nothing",
        SHA256: "64 hexadecimal digits (lower case), as sha256sum prints",
        SIGNATURE: "1 to 4096 printable characters and tabs in lines, as in the signature file",
        PRINTABLE: "1 to 255 printable characters",
        SOURCE: "1 to 255 printable characters of any language",
        SUBJECT: "an id or a name: 1 to 80 printable characters without blanks",
        EVENT_KIND: "a kind of event (see `fuga events`)",
        UNIT: "1 to 32 printable characters, the first and last no blank",
        HTTP_REQUEST_ID: "1 to 64 letters, digits and . _ -, as in X-Request-Id",
        IDEMPOTENCY_KEY: "1 to 200 printable characters without blanks",
        FAILURE_DOMAIN: "host, zone or label:KEY",
        HOST_CLASS: "labels joined by commas, `no labels` or `others`",
        USAGE_GROUPING: "tenant, group, type or label:KEY",
        PRICE: "a decimal number as a text, such as 0.025, with at most 15 decimal places",
        CURRENCY: "1 to 16 letters, digits and -, the first a letter, such as EUR",
        DAY: "a day such as 2026-01-31",
        MONTH: "a month such as 2026-10",
        BUDGET: "a decimal number as a text, such as 1000.00, with at most 6 decimal places",
        COST: "a decimal number as a text, such as -12.50, with at most 6 decimal places",
        MOMENT: "a time with its zone, such as 2026-01-31T14:00:00Z",
    }
)
