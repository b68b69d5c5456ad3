"""Real hosts are opened by a credential that fits, and say in plain words why by no other."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from hypervisor import HostConnection, HostUnreachableError
from lab import SCRIPTS
from monitor.preflight import PreflightTarget, check_host
from registry.hosts import HostCredentials
from tests.servers.lab_opened import (
    PATIENCE_S,
    OpenedLab,
    connect,
    opened_lab,
    other_authority,
    run,
    write_credential,
)
from tests.servers.running import eventually
from tests.servers.tcp_relay import relay_to

pytestmark = [pytest.mark.qemu, pytest.mark.slow]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenedLab]:
    with opened_lab(tmp_path_factory.mktemp("opened"), 1) as lab:
        lab.ssh(1, "start")
        yield lab


@pytest.fixture
def store(tmp_path: Path, lab: OpenedLab) -> HostCredentials:
    """Credentials `site` and `ssh`, which open the host, in a folder of an awkward name."""
    store = HostCredentials(tmp_path / "host & credentials;?#%20")
    lab.write_tls(store, "site")
    lab.write_ssh(store, "ssh", 1)
    return store


def hostname(connection: HostConnection) -> str:
    with connection:
        return connection.report("default").hostname


def reason(store: HostCredentials, connection: HostConnection) -> str:
    with connection, pytest.raises(HostUnreachableError) as caught:
        connection.report("default")
    assert str(store.folder) not in str(caught.value)
    return caught.value.reason


def test_certificates_and_keys_that_fit_open_the_host(
    lab: OpenedLab, store: HostCredentials
) -> None:
    assert hostname(connect(store, lab.tls_uri(1), "site")) == "labhost1"
    ssh = connect(store, lab.ssh_uri(1), "ssh", (lab.host_key(1),))
    assert hostname(ssh) == "labhost1"


def test_a_host_of_another_authority_is_not_spoken_to(
    lab: OpenedLab, store: HostCredentials, tmp_path: Path
) -> None:
    lab.write_tls(store, "foreign", other_authority(tmp_path / "pki"))

    why = reason(store, connect(store, lab.tls_uri(1), "foreign"))

    assert "its certificate is refused" in why
    assert "known issuer" in why
    assert "cacert.pem of credential foreign" in why


def test_a_host_of_another_name_is_not_spoken_to(lab: OpenedLab, store: HostCredentials) -> None:
    with relay_to(lab.address(1), 16514) as port:
        why = reason(store, connect(store, f"qemu+tls://127.0.0.1:{port}/system", "site"))

    assert "its certificate is refused" in why
    assert "does not match the hostname 127.0.0.1" in why


def test_a_client_of_another_authority_learns_that_the_host_refuses_it(
    lab: OpenedLab, store: HostCredentials, tmp_path: Path
) -> None:
    other = other_authority(tmp_path / "pki") / "client"
    both = (lab.pki / "ca.pem").read_bytes() + (other / "cacert.pem").read_bytes()
    files = {name: (other / name).read_bytes() for name in ("clientcert.pem", "clientkey.pem")}
    write_credential(store, "refused", {"cacert.pem": both, **files})

    why = reason(store, connect(store, lab.tls_uri(1), "refused"))

    assert "it refuses clientcert.pem of credential refused" in why


def test_a_host_whose_ssh_key_is_not_on_record_is_not_spoken_to(
    lab: OpenedLab, store: HostCredentials
) -> None:
    why = reason(store, connect(store, lab.ssh_uri(1), "ssh"))

    assert "none is registered" in why
    assert fingerprint(lab.ssh_folder(1) / "host.pub") in why
    assert "fuga host set HOST --ssh-host-key" in why


def test_a_host_whose_ssh_key_has_changed_is_not_spoken_to(
    lab: OpenedLab, store: HostCredentials
) -> None:
    known, known_as = lab.host_key(1), fingerprint(lab.ssh_folder(1) / "host.pub")
    lab.ssh(1, "new-key")

    why = reason(store, connect(store, lab.ssh_uri(1), "ssh", (known,)))

    assert f"{known_as} is registered" in why
    assert fingerprint(lab.ssh_folder(1) / "host.pub") in why
    both = connect(store, lab.ssh_uri(1), "ssh", (known, lab.host_key(1)))
    assert hostname(both) == "labhost1"


def test_a_key_that_the_host_does_not_take_is_told_so(
    lab: OpenedLab, store: HostCredentials, tmp_path: Path
) -> None:
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "id")
    write_credential(store, "stranger", {"id": (tmp_path / "id").read_bytes()})

    why = reason(store, connect(store, lab.ssh_uri(1), "stranger", (lab.host_key(1),)))

    assert "it does not accept the key of credential stranger" in why


def test_a_frozen_ssh_server_holds_nobody_longer_than_the_deadline(
    lab: OpenedLab, store: HostCredentials
) -> None:
    lab.ssh(1, "freeze")
    try:
        with (
            connect(store, lab.ssh_uri(1), "ssh", (lab.host_key(1),)) as connection,
            pytest.raises(HostUnreachableError, match="no answer within"),
        ):
            connection.report("default", deadline_s=4.0)
        assert connection._child is None  # it was killed: nothing waits for the host any more
    finally:
        lab.ssh(1, "thaw")
    thawed = connect(store, lab.ssh_uri(1), "ssh", (lab.host_key(1),))
    assert hostname(thawed) == "labhost1"


def test_a_hosts_network_is_cut_from_where_sys_is_another_namespaces(
    lab: OpenedLab, store: HostCredentials
) -> None:
    here = 'mount -t tmpfs none /sys && exec "$@"'
    fault = (SCRIPTS / "host-fault", lab.lab.directory, "1")

    run("unshare", "--mount", "sh", "-c", here, "sh", *fault, "cut-network")
    try:
        with (
            connect(store, lab.tls_uri(1), "site") as connection,
            pytest.raises(HostUnreachableError),
        ):
            connection.report("default", deadline_s=2.0)
    finally:
        run("unshare", "--mount", "sh", "-c", here, "sh", *fault, "restore-network")

    def answers() -> bool:
        """Return whether it does; "no route" is the end of looks for its MAC while it was cut."""
        try:
            return hostname(connect(store, lab.tls_uri(1), "site")) == "labhost1"
        except HostUnreachableError as error:
            if "No route to host" not in str(error):
                raise
            return False

    assert eventually(answers)


def test_a_host_is_looked_at_before_it_is_registered(
    lab: OpenedLab, store: HostCredentials
) -> None:
    target = PreflightTarget(name="h1", uri=lab.tls_uri(1), credential="site", domain_type="qemu")
    other = PreflightTarget(
        name="h2", uri=lab.ssh_uri(1), credential="ssh", ssh_host_keys=(lab.host_key(1),)
    )
    gone = PreflightTarget(name="h3", uri="qemu+tls://127.0.0.1:1/system", credential="site")

    found = check_host(
        target, [replace(other, domain_type="qemu"), gone], store, deadline_s=PATIENCE_S
    )

    host, pool = found["host"], found["pool"]
    assert (host["hostname"], host["driver"], host["network_fault"]) == ("labhost1", "QEMU", None)
    assert "qemu" in host["domain_types"]
    assert (pool["kind"], pool["active"], pool["starts_by_itself"]) == ("dir", True, True)
    assert abs(pool["clock_ahead_s"]) < 1
    assert found["others_unread"].keys() == {"h3"}, found["others_unread"]
    model = host["processor_model"]
    assert found["processors"] == {"baseline": model, "faults": {}, "others": ["h2"]}
    left = [each.name for each in connect(store, lab.tls_uri(1), "site").report("default").volumes]
    assert not [name for name in left if name.startswith("fuga-check")]


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"pool": "nowhere"}, "pool_fault"),
        ({"credential": "nobody"}, "credential_fault"),
        ({"uri": "qemu+tls://127.0.0.1:1/system"}, "unreachable"),
    ],
)
def test_what_cannot_be_looked_at_says_why(
    lab: OpenedLab, store: HostCredentials, changes: dict[str, str], fault: str
) -> None:
    target = PreflightTarget(name="h1", uri=lab.tls_uri(1), credential="site", domain_type="qemu")

    found = check_host(replace(target, **changes), [], store, deadline_s=PATIENCE_S)

    assert found[fault]


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("ssh_config", "Host *\n  StrictHostKeyChecking no\n"),
        ("ssh_known_hosts", "[{address}]:2222 {key}\n"),
    ],
    ids=["a configuration that checks nothing", "a key from elsewhere"],
)
def test_what_the_machine_knows_of_ssh_lets_no_host_in(
    lab: OpenedLab, store: HostCredentials, file: str, content: str
) -> None:
    """The machine's configuration is ours alone, in a mount namespace that ends with us."""
    content = content.format(address=lab.address(1), key=lab.host_key(1))
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from registry.hosts import HostCredentials\n"
        "from tests.servers.lab_opened import connect\n"
        "connection = connect(HostCredentials(Path(sys.argv[1])), sys.argv[2], 'ssh')\n"
        "try:\n"
        "    connection.report('default')\n"
        "except Exception as error:\n"
        "    print(error)\n"
    )
    script = f'mount -t tmpfs ssh /etc/ssh && printf %s "$1" >/etc/ssh/{file} && shift && exec "$@"'
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, "sh", content,
         sys.executable, "-c", program, str(store.folder), lab.ssh_uri(1)],
        capture_output=True, text=True, timeout=3 * PATIENCE_S, check=True,
        cwd=Path(__file__).parents[2],
    )  # fmt: skip

    assert "not opened: on this machine SSH takes any host key" in done.stdout


def fingerprint(public_key: Path) -> str:
    """Ask OpenSSH, around all of our code."""
    done = subprocess.run(
        ["ssh-keygen", "-lf", str(public_key)], capture_output=True, text=True, check=True
    )
    return done.stdout.split()[1]
