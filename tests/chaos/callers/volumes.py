"""Volumes of one tenant: created, attached to whatever runs, detached and removed without pause."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.chaos.callers.calls import TokenHolder

MOST = 2  #: of each tenant
SIZE_GIB = 1
_CREATE_PART = 0.5  #: of the times at which a tenant with fewer does anything
_REMOVE_PART = 0.1  #: of the times at which it finds a volume without a VM
_DETACH_PART = 0.12  #: of the times at which it finds one with a VM
_CHOSEN = 3  #: of its VMs, the oldest: guests that stay long enough to write
_ANY_VM_PART = 0.1  #: of attachments: whatever host the VM is on
_HEAL_S = 600.0
#: VMs that can take a volume, by its id and its tenant, and whether other hosts' are named, too.
_VMS = """
SELECT v.id FROM vms v JOIN tenants t ON t.id = v.tenant_id
 JOIN assignments a ON a.vm_id = v.id AND a.state = 'active'
 LEFT JOIN volumes d ON d.id = %s
 WHERE t.name = %s AND v.desired <> 'deleted' AND v.observed IN ('running', 'stopped')
 AND (%s OR d.host_id IS NULL OR d.host_id = a.host_id) ORDER BY v.id
"""


@dataclass(kw_only=True)
class VolumeOwner(TokenHolder):
    """Someone with a token of a tenant, who has volumes."""

    volumes: dict[str, str] = field(default_factory=dict)  #: names by id, as it knows them
    _volume_number: int = 0

    def change_volumes(self) -> None:
        """Create a volume, or attach, detach or remove one, of its requests as well."""
        self._read_volumes()
        if not self.volumes or (len(self.volumes) < MOST and self.rng.random() < _CREATE_PART):
            self._create_volume()
            return
        key = self.rng.choice(sorted(self.volumes))
        seen = self.call("GET", f"/v1/volumes/{key}").json()
        if seen["state"] in ("unplaced", "available"):
            if self.rng.random() < _REMOVE_PART:
                self._remove_volume(key)
            else:
                self._attach_volume(key)
        elif seen["state"] in ("creating", "attaching", "attached") and (
            self.rng.random() < _DETACH_PART
        ):
            self._note_volume("detachments", self._change_volume(key, "detach", {}))

    def remove_volumes(self) -> None:
        """Remove all volumes, each once no VM has it."""
        self._read_volumes()
        for key in sorted(self.volumes):
            self._change_volume(key, "detach", {})
            self.site.eventually(lambda key=key: self._is_removed(key), within_s=_HEAL_S)

    def _read_volumes(self) -> None:
        """Note which volumes there are: those that a request created may end with it."""
        items = self.call("GET", "/v1/volumes?limit=500").json()["items"]
        self.volumes = {each["id"]: each["name"] for each in items if each["state"] != "removing"}

    def _is_removed(self, key: str) -> bool:
        self.site.switch_on_what_is_off()
        return self._remove_volume(key)

    def _create_volume(self) -> None:
        self._volume_number += 1
        name = f"{self.name}-volume-{self._volume_number}"
        body = {"name": name, "size_gib": SIZE_GIB}
        answer = self.call("POST", "/v1/volumes", body, self.new_key())
        self._note_volume("volumes created", answer.status_code)
        if answer.status_code == 201:
            self.volumes[answer.json()["id"]] = name
            self.record.write("volume", tenant=self.name, name=name, id=answer.json()["id"])

    def _attach_volume(self, key: str) -> None:
        """Have a volume attached to a VM, if there is one."""
        anywhere = self.rng.random() < _ANY_VM_PART
        vms = self.site.tried_sql(_VMS, key, self.name, anywhere)
        if vms:
            vm = str(self.rng.choice(vms[:_CHOSEN])[0])
            self._note_volume("attachments", self._change_volume(key, "attach", {"vm": vm}))

    def _change_volume(self, key: str, what: str, body: dict[str, str]) -> int:
        answer = self.call("POST", f"/v1/volumes/{key}/{what}", body, self.new_key())
        return answer.status_code

    def _remove_volume(self, key: str) -> bool:
        answer = self.call("DELETE", f"/v1/volumes/{key}")
        self._note_volume("volumes removed", answer.status_code)
        if answer.status_code == 202:
            del self.volumes[key]
            self.record.write("volume removed", id=key)
        return answer.status_code == 202

    def _note_volume(self, what: str, status: int) -> None:
        """Count an answer; a conflict is one that tenants expect."""
        self.counts[what if status < 300 else f"{what}, refused"] += 1
        if status >= 300 and status != 409:
            self.record.write("refused", name=f"{self.name}: {what}", status=status, said=what)
