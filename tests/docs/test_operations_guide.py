"""The operations guide, typed as it stands: a production site with TLS, in a box of its own.

The box is this machine with namespaces of its own (processes, network, mounts): what the
guide writes lies in layers that end with it, and so does everything that it starts.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import SCRIPTS, cluster
from tests.docs.markdown import ROOT, split
from tests.servers.lab_hosts import guest_dir
from tests.servers.postgres import programs

GUIDE = ROOT / "docs" / "operations.md"
HOST = "10.213.77.1"
#: What `apt-get` leaves behind, the guide's names, and fuga as it would be installed.
MACHINE = f"""
set -euo pipefail
box=$1 root=$2 venv=$3 lab=$4
mount -t tmpfs none "$box"
mkdir "$box"/src "$box"/venv
mount --bind "$root" "$box/src"
mount --bind "$venv" "$box/venv"
for folder in etc opt root srv var; do
  mkdir "$box/$folder" "$box/$folder-work"
  layers=lowerdir=/$folder,upperdir=$box/$folder,workdir=$box/$folder-work
  mount -t overlay none -o "$layers" "/$folder"
done
chmod a+x /root # the interpreter may lie below it
mount -t tmpfs none /run
mkdir -p /run/lock
install -d -o postgres -g postgres -m 2775 /run/postgresql
ip link set lo up
rm -rf /etc/postgresql /var/lib/postgresql /etc/fuga /var/lib/fuga /opt/fuga /srv/ca
install -d -o postgres -g postgres /var/lib/postgresql
pg_createcluster "$(ls /usr/lib/postgresql | sort -V | tail -n 1)" main
mkdir -p /opt/fuga/bin /opt/fuga/src /opt/fuga/venv
mount --move "$box/src" /opt/fuga/src
mount --move "$box/venv" /opt/fuga/venv
cat >/opt/fuga/bin/fuga <<'END'
#!/bin/sh
PYTHONPATH=/opt/fuga/src exec /opt/fuga/venv/bin/python /opt/fuga/venv/bin/fuga "$@"
END
chmod 755 /opt/fuga/bin/fuga
cat >/etc/hosts <<'END'
127.0.0.1 localhost api.example.org db.example.org mq.example.org
{HOST} kvm-01.example.org
END
systemctl() {{ /opt/fuga/src/deploy/unit "$@"; }}
cd /opt/fuga/src
trap 'tail -n 20 /var/log/fuga-*.log >&2' ERR
"""
#: A lab host in place of kvm-01, with certificates of the guide's authority.
KVM_01 = f"""
(cd /srv/ca && sign kvm-01.example.org serverAuth IP:{HOST})
install -d "$lab/pki" "$lab/pki/client" "$lab/pki/server-{HOST}"
cp /srv/ca/ca.pem "$lab/pki/"
for of in client:fuga server-{HOST}:kvm-01.example.org; do
  folder=$lab/pki/${{of%:*}} name=${{of%:*}} name=${{name%%-*}}
  cp /srv/ca/ca.pem "$folder/cacert.pem"
  cp "/srv/ca/${{of#*:}}.pem" "$folder/${{name}}cert.pem"
  cp "/srv/ca/${{of#*:}}.key" "$folder/${{name}}key.pem"
done
LAB_SUBNET={HOST[:-2]} LAB_TRANSPORT=tls LAB_TIMEOUT=600 LAB_BASE="$5" "$6/start-hosts" 1 "$lab"
"""
#: Slots of the guide's example last a minute; and this machine may be slow.
SETTINGS = """
cat >>/etc/fuga/fuga.env <<'END'
FUGA_SLOT_LENGTH_S=2
FUGA_CALL_DEADLINE_S=600
FUGA_LOOKUP_DEADLINE_S=600
FUGA_UNREACHABLE_AFTER=1000
FUGA_DOWN_AFTER=2000
END
"""
#: What the guide says that lab hosts are to be told.
OF_THE_LAB = (
    "--domain-type qemu --base-volume base.qcow2 --memory-backing-mib 80"
    " --override vcpus=4 --override memory_mib=8192 --override disk_gib=100"
)
CHECK_OF_THE_LAB = "--credential site --domain-type qemu --timeout 600"
#: What restarts everything once more: only if the whole guide is asked for.
LONG_SECTIONS = ("Upgrading while it runs", "Backing up and restoring")
#: how often what is typed asks `fuga doctor`: of the API, the database and the broker
DOCTORS = 2
WHOLE = bool(os.environ.get("WHOLE_GUIDE"))


def why_not() -> str | None:
    """Return why it cannot be followed here; None: it can."""
    if reason := cluster.real_hosts_obstacle():
        return reason
    for program in ("pg_createcluster", "redis-server", "curl", "openssl"):
        if shutil.which(program) is None:
            return f"{program} is not installed (scripts/install tests)"
    if programs() is None or not Path("/etc/redis/redis.conf").is_file():
        return "PostgreSQL or Redis are not as Debian installs them"
    interpreter = Path(sys.executable).resolve()
    above = [each for each in interpreter.parents if each != Path("/root")]
    if not all(each.stat().st_mode & 0o001 for each in (interpreter, *above, ROOT)):
        return "the user fuga could not run this interpreter, or read this checkout"
    layers = "mount -t tmpfs none /mnt && cd /mnt && mkdir upper work && mount -t overlay none"
    layers += " -o lowerdir=/etc,upperdir=upper,workdir=work /etc"
    tried = subprocess.run(
        ["unshare", "--mount", "--net", "--pid", "--fork", "--propagation", "private",
         "sh", "-c", layers],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return tried.stderr.strip() or None


def typed() -> Iterator[str]:
    """What the guide has people type, but for what packages and hosts need."""
    text = GUIDE.read_text("utf-8")
    assert OF_THE_LAB in " ".join(text.split())
    for section in text.split("\n## "):
        if section.splitlines()[0] in LONG_SECTIONS and not WHOLE:
            continue
        for block in split(section)[0]:
            if block.info != "sh":
                continue
            if "fuga db token" in block.text:
                yield SETTINGS
            if "fuga host check" in block.text:
                yield KVM_01
                yield block.text.replace("--credential site", CHECK_OF_THE_LAB)
                continue
            shown = block.text.replace("--credential site", f"--credential site {OF_THE_LAB}")
            yield shown.replace("--wait", "--wait --timeout 1200")


@pytest.mark.long
@pytest.mark.qemu
@pytest.mark.postgresql
@pytest.mark.slow
@pytest.mark.demanding
@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
def test_a_site_comes_up_as_the_guide_says(tmp_path: Path) -> None:
    guest_dir().mkdir(parents=True, exist_ok=True)
    guest = cluster.build_guest(guest_dir())
    script = tmp_path / "guide"
    script.write_text("\n".join([MACHINE, *typed()]))
    box, lab = tmp_path / "box", tmp_path / "lab"
    box.mkdir()
    lab.mkdir()

    done = subprocess.run(
        ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--net", "--pid", "--ipc",
         "--fork", "--kill-child", "--mount-proc", "--propagation", "private", "bash", str(script),
         str(box), str(ROOT), sys.prefix, str(lab), str(guest), str(SCRIPTS)],
        capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
        env={"PATH": os.environ["PATH"] + ":/usr/sbin:/sbin", "HOME": "/root", "LANG": "C.UTF-8"},
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr
    assert "stopped at " not in done.stderr, done.stdout + done.stderr
    assert "1 of 1 hosts are up" in done.stdout
    assert done.stdout.count("encrypted, server name verified") == 3 * DOCTORS
    assert re.search(r" first-1 +a +small +kvm-01 +running ", done.stdout), done.stdout
