"""Any bytes for an image: refused, or taken by other readers for what they are said to be."""

from __future__ import annotations

import io
import struct
import tempfile

from hypothesis import example, given
from hypothesis import strategies as st
from oslo_utils.imageutils import format_inspector

from registry import ImageRefusedError
from registry.images.header import probe_formats, read_virtual_size
from registry.records.images import ImageFormat
from workers import vfat

#: libvirt's table of formats (storage_file_probe.c): place and magic; none is looked at further.
LIBVIRT = (
    (32769, b"CD001"),
    (0, b"conectix"),
    (64, b"\x7f\x10\xda\xbe"),
    (0, b"WithouFreSpacExt"),
    (0, b"WithoutFreeSpace"),
    (0, b"OOOM"),
    (0, b"QFI"),
    (0, b"QED"),
    (0, b"KDMV"),
    (0, b"LUKS\xba\xbe"),
)
OTHERS = ((0, b"vhdxfile"), (0, b"COWD"), (512, b"EFI PART"), (510, b"\x55\xaa"))
LENGTH = 33_792


def accepted(content: bytes, said: ImageFormat) -> int | None:
    try:
        return read_virtual_size(io.BytesIO(content), said)
    except ImageRefusedError:
        return None


@st.composite
def disks(draw: st.DrawFn) -> bytes:
    """Zeros with some magics at, or near, where they count, and noise."""
    disk = bytearray(LENGTH)
    pieces = draw(st.lists(st.sampled_from(LIBVIRT + OTHERS), max_size=3))
    for place, magic in pieces:
        at = max(0, place + draw(st.sampled_from((0, 0, 0, 1, -1))))
        disk[at : at + len(magic)] = magic
        noise = draw(st.binary(max_size=80))
        disk[at + len(magic) : at + len(magic) + len(noise)] = noise
    return bytes(disk[:LENGTH])


def of_libvirt(content: bytes) -> bool:
    return any(content[at : at + len(magic)] == magic for at, magic in LIBVIRT)


def of_oslo(content: bytes) -> str:
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        try:
            found = format_inspector.detect_file_format(file.name)
        except format_inspector.ImageFormatError:
            return "several at once"
    return str(found)


@given(disks())
@example(b"QFIX\0\0\0\2".ljust(LENGTH, b"\0"))
@example(b"QED!".ljust(LENGTH, b"\0"))
def test_a_raw_disk_is_one_to_libvirt_and_to_oslo(content: bytes) -> None:
    taken = accepted(content, "raw")

    if taken is None:
        assert any(probe_formats(content, content[-512:]))
    else:
        assert taken == len(content)
        assert not of_libvirt(content)
        assert of_oslo(content) in ("raw", "gpt")


@st.composite
def qcow2_heads(draw: st.DrawFn) -> bytes:
    """A header with at most a few fields that are not sound."""
    odd = draw(st.sets(st.integers(0, 16), max_size=3))
    fields = [3, 0, 0, 16, 10 << 30, 0, 20, 3 << 16, 1 << 16, 1, 0, 4 << 16, 0, 0, 0, 4, 104]
    forms = "IQIIQIIQQIIQQQQII"
    for at in odd:
        largest = (1 << (64 if forms[at] == "Q" else 32)) - 1
        fields[at] = draw(st.integers(0, 130) | st.integers(0, largest))
    extensions = b"".join(
        struct.pack(">II", kind, len(body)) + body.ljust(-(-len(body) // 8) * 8, b"\0")
        for kind, body in draw(
            st.lists(
                st.tuples(
                    st.sampled_from((1, 0x44415441, 0x23852875, 0x0537BE77, 0xE2792ACA)),
                    st.binary(max_size=40),
                ),
                max_size=2,
            )
        )
    )
    head = b"QFI\xfb" + struct.pack(f">{forms}", *fields) + extensions + bytes(8)
    return head.ljust(draw(st.sampled_from((len(head), 1 << 16, 5 << 16))), b"\0")


@given(qcow2_heads())
def test_a_qcow2_image_that_is_taken_passes_the_checks_of_oslo(content: bytes) -> None:
    if accepted(content, "qcow2") is None:
        return

    inspector = format_inspector.QcowInspector()
    inspector.eat_chunk(content.ljust(1024, b"\0"))

    assert inspector.format_match
    inspector.safety_check()  # no backing file, no data file, no feature unknown to it


@given(st.binary(max_size=600), st.sampled_from(["raw", "qcow2"]))
def test_any_bytes_are_refused_or_have_a_size(content: bytes, said: ImageFormat) -> None:
    for start in (b"", b"QFI\xfb", b"QFI\xfb\0\0\0\2", b"QFI\xfb\0\0\0\3"):
        size = accepted(start + content, said)
        assert size is None or size > 0


@given(st.binary(max_size=2000), st.integers(0, 33_000))
@example(b"CD001", 32_769 - 512)
def test_no_user_data_makes_a_seed_lead_libvirt_anywhere(data: bytes, at: int) -> None:
    """A tenant writes its seed's data, and a raw volume of it lies in the hosts' pools."""
    content = bytes(at) + data + b"CD001OOOMQFI" * 2000
    seed = vfat.vfat_volume("cidata", {"user-data": content, "OOOM": data, "QFI": b"QED"})

    # An ISO's name has nothing to follow.
    assert all(what.startswith("an ISO") for what in probe_formats(seed[: 1 << 16], b""))
