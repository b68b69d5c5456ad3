/** Volumes: disks that outlive VMs, which VM has each, and the path of its disk in the guest. */
import { useState } from "preact/hooks";
import { newKey, send } from "../api/client";
import { useRows } from "../api/live";
import { session } from "../api/session";
import type { Vm, Volume } from "../api/types";
import { ActionButton, some } from "../parts/action_button";
import { Command, State } from "../parts/basics";
import { CreateForm, Field } from "../parts/create_form";
import { DeleteButton } from "../parts/delete_button";
import { Dialog } from "../parts/dialogs";
import { Listing } from "../parts/listing";
import { aged, type Column } from "../parts/table";
import { to } from "../route";
import { count, plain, shellWord } from "../words";

const pathOf = (volume: Volume): string => `volumes/${encodeURIComponent(volume.id)}`;
const ofTenant = (volume: Volume): string => (session.isOperator ? ` --tenant ${shellWord(volume.tenant)}` : "");
/** Whether a VM of a request waits for a host with a volume. */
const isAwaited = (volume: Volume): boolean => volume.vm_id === null && volume.waiting_vm !== null;
export const isFree = (volume: Volume): boolean => ["available", "unplaced"].includes(volume.state) && !isAwaited(volume);
const hasVm = (volume: Volume): boolean => ["creating", "attaching", "attached"].includes(volume.state) || isAwaited(volume);
const errorOf = (volume: Volume): string => volume.trouble ?? volume.last_error ?? "";

const COLUMNS: Column<Volume>[] = [
  { name: "Name", value: (volume) => volume.name, cell: (volume) => volume.name },
  { name: "Tenant", value: (volume) => volume.tenant, cell: (volume) => volume.tenant },
  { name: "GiB", value: (volume) => volume.size_gib, cell: (volume) => volume.size_gib, numeric: true },
  {
    name: "State",
    value: (volume) => `${volume.state} ${errorOf(volume)}`,
    cell: (volume) => (
      <>
        <State word={volume.state} />
        {volume.protected && <span class="why">protected from removal</span>}
        {errorOf(volume) && <span class="why">{plain(errorOf(volume))}</span>}
      </>
    ),
  },
  {
    name: "VM",
    value: (volume) => volume.vm ?? volume.waiting_vm ?? "",
    cell: (volume) => {
      if (volume.vm_id) return <a href={to("vms", volume.vm_id)}>{volume.vm}</a>;
      return volume.waiting_vm ? `${volume.waiting_vm}, which waits for a host` : "-";
    },
  },
  { name: "Host", value: (volume) => volume.host ?? "", cell: (volume) => volume.host ?? "-" },
  {
    name: "In the guest",
    value: (volume) => volume.serial,
    cell: (volume) => (volume.vm_id ? <code>/dev/disk/by-id/virtio-{volume.serial}</code> : "-"),
  },
  aged((volume) => volume.created_at),
];

export function VolumesView() {
  return (
    <Listing
      title="Volumes"
      label="volumes"
      path="volumes"
      searches
      line="fuga volume list"
      columns={COLUMNS}
      keyOf={(volume) => volume.id}
      nameOf={(volume) => volume.name}
      empty="No volumes. What has to outlive a VM belongs on one."
      actions={
        session.readOnly
          ? undefined
          : (chosen, clear) => (
              <>
                <AttachButton volumes={chosen} onDone={clear} />
                <DetachButton volumes={chosen} onDone={clear} />
                <ProtectButton volumes={chosen} onDone={clear} />
                <DeleteButton things={chosen} path="volumes" onDone={clear} />
              </>
            )
      }
    >
      <p class="lead">
        Disks that outlive VMs. The first attachment makes the file of a volume on the host of that VM, where it stays.
      </p>
      {!session.readOnly && <CreateVolume />}
    </Listing>
  );
}

function AttachButton({ volumes, onDone }: { volumes: Volume[]; onDone: () => void }) {
  const [open, setOpen] = useState(false);
  const free = volumes.filter(isFree);
  return (
    <>
      <button type="button" disabled={free.length === 0} onClick={() => setOpen(true)}>
        Attach{free.length > 1 ? ` ${free.length}` : ""}
      </button>
      {open && <AttachDialog volumes={free} onDone={onDone} onClose={() => setOpen(false)} />}
    </>
  );
}

/** Whether a volume may go to a VM, as far as the lists say: one of its tenant that has a host. */
function mayTake(vm: Vm, volumes: Volume[]): boolean {
  return vm.host !== null && vm.desired !== "deleted" && volumes.every((volume) => volume.tenant === vm.tenant);
}

function AttachDialog(given: { volumes: Volume[]; onDone: () => void; onClose: () => void }) {
  const { volumes } = given;
  const [chosen, setChosen] = useState("");
  const listed = useRows<Vm>("vms").data;
  const vms = listed?.rows.filter((vm) => mayTake(vm, volumes)) ?? [];
  const near = (vm: Vm): boolean => volumes.some((volume) => volume.host === vm.host);
  vms.sort((one, other) => Number(near(other)) - Number(near(one)));
  const vm = vms.find((each) => each.id === chosen);
  const body = { vm: chosen };
  const keys = new Map(volumes.map((volume) => [volume.id, newKey()]));
  const lines = vm
    ? volumes.slice(0, 1).map((volume) => `fuga volume attach ${shellWord(volume.name)} ${shellWord(vm.name)}${ofTenant(volume)}`)
    : [];
  const done = (): void => {
    given.onClose();
    given.onDone();
  };
  return (
    <Dialog title={`Attach ${count(volumes.length, "volume")}`} onClose={given.onClose}>
      <p class="names">{some(volumes.map((volume) => volume.name), ", ")}</p>
      <label>
        VM <span class="hint">(a volume with a file goes to VMs on its host)</span>
        <select value={chosen} onChange={(event) => setChosen(event.currentTarget.value)}>
          <option value="">Choose a VM</option>
          {vms.map((each) => (
            <option key={each.id} value={each.id}>
              {each.name} on {each.host}
            </option>
          ))}
        </select>
      </label>
      {listed && vms.length === 0 && <p class="hint">There is no VM with a host. Request one first.</p>}
      {vm && <Command line={lines.join()} calls={volumes.slice(0, 1).map((volume) => ({ method: "POST", path: `${pathOf(volume)}/attach`, body }))} />}
      <p class="buttons">
        <button type="button" onClick={given.onClose}>
          Cancel
        </button>
        <ActionButton
          things={volumes}
          action="Attach"
          disabled={!vm}
          nameOf={(volume) => volume.name}
          act={(volume) => send("POST", `${pathOf(volume)}/attach`, { body, key: keys.get(volume.id) ?? newKey() })}
          line=""
          call={(volume) => ({ method: "POST", path: `${pathOf(volume)}/attach`, body })}
          onDone={done}
        />
      </p>
    </Dialog>
  );
}

function DetachButton({ volumes, onDone }: { volumes: Volume[]; onDone: () => void }) {
  const attached = volumes.filter(hasVm);
  const keys = new Map(attached.map((volume) => [volume.id, newKey()]));
  return (
    <ActionButton
      things={attached}
      action="Detach"
      disabled={attached.length === 0}
      title={`Detach ${count(attached.length, "volume")}?`}
      nameOf={(volume) => volume.name}
      act={(volume) => send("POST", `${pathOf(volume)}/detach`, { body: {}, key: keys.get(volume.id) ?? newKey() })}
      line={attached.slice(0, 1).map((volume) => `fuga volume detach ${shellWord(volume.name)}${ofTenant(volume)}`).join()}
      call={(volume) => ({ method: "POST", path: `${pathOf(volume)}/detach`, body: {} })}
      onDone={onDone}
    >
      <p>Unmount it in the guest before. A guest that does not release the disk within a minute keeps it.</p>
    </ActionButton>
  );
}

/** Protects volumes from removal; takes that back if all of them are protected. */
function ProtectButton({ volumes, onDone }: { volumes: Volume[]; onDone: () => void }) {
  const release = volumes.length > 0 && volumes.every((volume) => volume.protected);
  const option = release ? "--no-protected" : "--protected";
  const body = { protected: !release };
  return (
    <ActionButton
      things={volumes}
      action={release ? "Unprotect" : "Protect"}
      disabled={volumes.length === 0}
      nameOf={(volume) => volume.name}
      act={(volume) => send("PATCH", pathOf(volume), { body })}
      line={volumes.slice(0, 1).map((volume) => `fuga volume set ${shellWord(volume.name)} ${option}${ofTenant(volume)}`).join()}
      call={(volume) => ({ method: "PATCH", path: pathOf(volume), body })}
      onDone={onDone}
    />
  );
}

const NONE = { name: "", size: "10", tenant: "" };

function CreateVolume() {
  const [typed, setTyped] = useState(NONE);
  const set = (change: Partial<typeof NONE>): void => setTyped((before) => ({ ...before, ...change }));
  const body = {
    name: typed.name.trim(),
    size_gib: Number(typed.size),
    ...(session.isOperator ? { tenant: typed.tenant.trim() } : {}),
  };
  return (
    <CreateForm
      title="Create a volume"
      content={body}
      ready={Boolean(body.name && body.size_gib > 0 && (body.tenant ?? "x"))}
      make={async (key) => {
        await send("POST", "volumes", { body, key });
        setTyped(NONE);
      }}
      line={`fuga volume create ${shellWord(body.name || "NAME")} --size ${body.size_gib}GiB${body.tenant ? ` --tenant ${shellWord(body.tenant)}` : ""}`}
      calls={[{ method: "POST", path: "volumes", body }]}
    >
      <Field name="Name" most={63} value={typed.name} onInput={(name) => set({ name })} />
      <label>
        Size in GiB
        <input
          type="number"
          min="1"
          max="1048576"
          required
          value={typed.size}
          onInput={(event) => set({ size: event.currentTarget.value })}
        />
      </label>
      {session.isOperator && <Field name="Tenant" most={63} value={typed.tenant} onInput={(tenant) => set({ tenant })} />}
    </CreateForm>
  );
}
