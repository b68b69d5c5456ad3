"""What somebody reads at the prompt who typed something wrong: the option, and what to type."""

from __future__ import annotations

import re

import pytest

from registry import Registry
from registry.networks import NetworkSource
from tests.e2e.conftest import Fuga
from tests.register import ACTOR, a_cluster, add_request


@pytest.fixture
def site(register: Registry) -> Registry:
    a_cluster(register, 2)
    add_request(register, name="web", count=2)
    source = NetworkSource(kind="network", name="default")
    register.networks.add("lan", default=source, actor=ACTOR)
    return register


ASK = "request small --tenant a"
SAID = [
    ("request smal --tenant a", "TYPE: VM type 'smal' not found; did you mean small?"),
    (f"{ASK} -n 0", "--count: found 0, allowed is a whole number from 1 to 10000"),
    (
        "request small",
        "--tenant: found nothing, allowed is a tenant's name (required for operators)",
    ),
    ("request small --tenant x", "--tenant: tenant 'x' not found; known: a and b"),
    (f"{ASK} --name Web_1", "--name: found 'Web_1', allowed is 1 to 63 of a-z, 0-9,"),
    (f"{ASK} --name Web_1", "did you mean web_1?"),
    (f"{ASK} --network len", "--network: network 'len' not found; did you mean lan?"),
    (f"{ASK} --image lab", "--image: image 'lab' not found; none exist yet"),
    (f"{ASK} --host h3", "--host: host 'h3' not found; known: h1 and h2"),
    (f"{ASK} --require -x", "--require: found '-x', allowed is 1 to 128 letters"),
    (f"{ASK} --forbid -x", "--forbid: found '-x', allowed is 1 to 128 letters"),
    (f"{ASK} --zone -x", "--zone: found '-x', allowed is 1 to 128 letters"),
    (f"{ASK} --affinity X", "--affinity: found 'X', allowed is 1 to 63 of"),
    (f"{ASK} --anti-affinity X:soft", "--anti-affinity: found 'X', allowed is 1 to 63 of"),
    (f"{ASK} --spread host", "--spread: found 'host', allowed is zone"),
    (f"{ASK} --label env=-x", "--label (env): found '-x', allowed is 1 to 63 letters"),
    (f"{ASK} --ttl 0s", "--ttl: found 0, allowed is a whole number from 1 to"),
    (f"{ASK} --hostname -x", "--hostname: found '-x', allowed is"),
    ("scale web -n 0", "--count: found 0, allowed is a whole number from 1 to 10000"),
    ("scale web -n 4..2", "'4..2': the second number is the"),
    ("scale web -n ４..２０", "wanted a number of VMs such"),
    ("scale web -n 2 --remove web-1", "--remove: found 1, allowed is none: 2 VMs are to be there"),
    ("rm wbe", "no request or VM with name or id 'wbe'; did"),
    ("explain web-9", "did you mean web-2, web-1 or web?"),
    ("stop wbe", "did you mean web"),
    ("vms --state runing", "--state: found 'runing', allowed is one of absent, running,"),
    ("vms --state runing", "did you mean running?"),
    ("requests --state places", "did you mean placed?"),
    ("move web-1 --to h3", "--to: host 'h3' not found; `fuga host list` lists them"),
    ("move wbe-1", "did you mean web-1"),
    ("move show web-1", "VM web-1 never moved"),
    ("move list --state movd", "--state: found 'movd', allowed is one of pending, moving,"),
    ("capacity smal", "VM type 'smal' not found; did you mean small?"),
    ("quota set a vcpu=1", "RESOURCE=LIMIT (vcpu): resource 'vcpu' not found; did you mean vcpus?"),
    ("quota set c vcpus=1", "tenant 'c' not found; known: a and b"),
    ("type add t vcpsu=1", "RESOURCE=AMOUNT (vcpsu): resource 'vcpsu' not found; did you mean"),
    ("type add t vcpus=0", "RESOURCE=AMOUNT (vcpus): found 0, allowed is a whole number from 1"),
    ("tenant create C", "NAME: found 'C', allowed is 1 to 63 of"),
    ("tenant create c --weight 0", "--weight: found 0.0, allowed is a number from 0.000001 to 1"),
    ("tenant create c --parent g", "--parent: group of tenants 'g' not found; none exist"),
    ("tenant move a --to b", "--to: found 'b', allowed is a group; b is a tenant"),
    ("host show h3", "host 'h3' not found; known: h1 and h2"),
    ("host set h1 --override gpu=1", "--override (gpu): resource 'gpu' not found; known:"),
    ("host set h1 --label -x", "--label: found '-x', allowed is 1 to 128 letters"),
    ("host add H qemu+tls://h/system", "NAME: found 'H', allowed is 1 to 63 of"),
    ("network set len --isolated", "network 'len' not found; did you mean lan?"),
    ("network add n --source d --cidr 10.0.0.1/24", "--cidr: found '10.0.0.1/24', allowed is an"),
    ("network add n --source d --offer-to c", "--offer-to: tenant or group 'c' not found; known: "),
    ("network add n --source d --tenant c", "--tenant: tenant or group 'c' not found; known: "),
    ("network add n --host h3=x", "--host: host 'h3' not found; known: h1 and h2"),
    ("token create --tenant c", "--tenant: tenant 'c' not found; known: a and b"),
    ("token revoke ops-tokn", "no valid token is called 'ops-tokn'; did you mean ops-token?"),
    ("resource set vcpsu --overhead 1", "resource 'vcpsu' not found; did you mean vcpus?"),
    ("events --subject wbe", "request, VM, host or volume 'wbe' not found"),
    ("events --kind X", "--kind: found 'X', allowed is a kind of event (see `fuga events`)"),
    ("audit --method GET", "--method: found 'GET', allowed is one of POST, PATCH, PUT and DELETE"),
    ("image show lab", "image 'lab' not found; none exist yet"),
    ("solve docs/examples/fuga_worked_example.json --policy fgua", "did you mean fuga?"),
]


def test_every_slip_is_answered_with_the_option_and_what_to_type(
    site: Registry, fuga: Fuga
) -> None:
    amiss = []
    for typed, said in SAID:
        try:
            shown = " ".join(fuga(*typed.split(), status=2).split())
        except AssertionError as error:
            shown = str(error)
        if said not in shown or re.search(r"#/|None|\\d|\^", shown):
            amiss.append(f"fuga {typed}\n  {shown}\n  not: {said}")

    assert not amiss, "\n".join(amiss)
