/** Steps that an operator takes with a host; each tells first what follows from it. */
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { send } from "../../api/client";
import type { Host, Plan, Vm } from "../../api/types";
import type { Call } from "../../parts/as_command";
import { ConfirmButton, ConfirmDialog, useSending } from "../../parts/dialogs";
import { Command } from "../../parts/basics";
import { count, shellWord } from "../../words";
import { healthOfHost } from "../hosts";
import { type Preview, usePreview, WouldMove } from "./preview";

interface Given {
  host: Host;
  /** Null: not read yet. */
  vms: Vm[] | null;
  more: boolean;
  onRetired: () => void;
}

export function Actions({ host, vms, more, onRetired }: Given) {
  const name = shellWord(host.name);
  const path = `hosts/${encodeURIComponent(host.name)}`;
  const many = vms === null ? "Its VMs" : `${more ? "More than " : ""}${count(vms.length, "VM")}`;
  return (
    <div class="buttons" role="group" aria-label="Actions">
      {host.admin !== "draining" && (
        <TakeOut host={host} vms={vms} admin="draining" name="Drain">
          <p>It gets no new VMs from the next round on. {many} on it keep running.</p>
        </TakeOut>
      )}
      {host.admin !== "maintenance" && (
        <TakeOut host={host} vms={vms} admin="maintenance" name="Maintenance">
          <p>
            It gets no new VMs from the next round on, and counts as one that somebody works on. {many} on it keep
            running until they move or you switch it off.
          </p>
        </TakeOut>
      )}
      {host.admin !== "active" && (
        <ConfirmButton
          name="Activate"
          title={`Place VMs on ${host.name} again?`}
          action="Activate"
          line={`fuga host activate ${name}`}
          method="PATCH"
          path={path}
          body={{ admin: "active" }}
        >
          <p>
            The next round may place VMs here
            {host.health === "up" ? "." : `, once it is up: it is ${healthOfHost(host)} now.`} {many} on it stay.
          </p>
        </ConfirmButton>
      )}
      {(vms?.length ?? 0) > 0 && host.health === "up" && <Empty host={host} vms={vms ?? []} />}
      {host.health === "down" && <Fence host={host} many={many} />}
      <ConfirmButton
        name="Remove"
        title={`Remove ${host.name}?`}
        action="Remove"
        danger
        disabled={vms === null || vms.length > 0}
        line={`fuga host remove ${name}`}
        method="DELETE"
        path={path}
        onDone={onRetired}
      >
        <p>It is retired: fuga forgets how to reach it, and keeps its history. Its name may be given again.</p>
      </ConfirmButton>
      {vms !== null && vms.length > 0 && <span class="hint">To remove it, have its VMs moved away first.</span>}
    </div>
  );
}

/** Drain or maintain: with the VMs where they are, or with the moves that were shown. */
function TakeOut(given: {
  host: Host;
  vms: Vm[] | null;
  admin: "draining" | "maintenance";
  name: string;
  children: ComponentChildren;
}) {
  const [asks, setAsks] = useState(false);
  return (
    <>
      <button type="button" onClick={() => setAsks(true)}>
        {given.name}
      </button>
      {asks && <TakeOutAsks {...given} onDone={() => setAsks(false)} />}
    </>
  );
}

function TakeOutAsks(given: Parameters<typeof TakeOut>[0] & { onDone: () => void }) {
  const { host, vms, admin } = given;
  const path = `hosts/${encodeURIComponent(host.name)}`;
  const [moves, setMoves] = useState(false);
  const preview = usePreview(moves ? [host.name] : null);
  const sending = useSending();
  // One without a move is done as soon as it is decided: the host is empty, or its VMs stay.
  const decided = preview.plan?.state === "proposed" || preview.plan?.state === "done";
  const yes = async (): Promise<void> => {
    const done = await sending.run(async () => {
      await send<Host>("PATCH", path, { body: { admin } });
      if (moves && preview.plan?.state === "proposed") {
        await send<Plan>("POST", `plans/${preview.plan.id}/approve`, { body: {} });
        preview.keep();
      }
    });
    if (done) given.onDone();
  };
  const word = admin === "draining" ? "drain" : "maintenance";
  return (
    <ConfirmDialog
      title={admin === "draining" ? `Drain ${host.name}?` : `Take ${host.name} into maintenance?`}
      action={`${admin === "draining" ? "Drain" : "Maintain"}${moves ? " and move" : ""}`}
      busy={sending.busy}
      disabled={moves && !decided}
      problem={sending.problem}
      onYes={() => void yes()}
      onNo={given.onDone}
    >
      {given.children}
      <fieldset>
        <legend>Its VMs</legend>
        <label class="check">
          <input type="radio" name="vms" checked={!moves} onChange={() => setMoves(false)} /> stay where they are
        </label>
        <label class="check">
          <input type="radio" name="vms" checked={moves} onChange={() => setMoves(true)} /> move to other hosts while
          they run
        </label>
      </fieldset>
      {moves && <WouldMove preview={preview} names={namesOf(vms ?? [])} />}
      <Command
        line={`fuga host ${word} ${shellWord(host.name)}${moves ? " --move" : ""}`}
        calls={[{ method: "PATCH", path, body: { admin } }, ...(moves ? approval(preview) : [])]}
      />
    </ConfirmDialog>
  );
}

/** Move its VMs away, and leave it as it is. */
function Empty({ host, vms }: { host: Host; vms: Vm[] }) {
  const [asks, setAsks] = useState(false);
  return (
    <>
      <button type="button" onClick={() => setAsks(true)}>
        Move its VMs
      </button>
      {asks && <EmptyAsks host={host} vms={vms} onDone={() => setAsks(false)} />}
    </>
  );
}

function EmptyAsks({ host, vms, onDone }: { host: Host; vms: Vm[]; onDone: () => void }) {
  const preview = usePreview([host.name]);
  const sending = useSending();
  const yes = async (): Promise<void> => {
    const done = await sending.run(async () => {
      await send<Plan>("POST", `plans/${preview.plan?.id}/approve`, { body: {} });
      preview.keep();
    });
    if (done) onDone();
  };
  return (
    <ConfirmDialog
      title={`Move the VMs of ${host.name} away?`}
      action="Move them"
      busy={sending.busy}
      disabled={preview.plan?.state !== "proposed" || preview.plan.moves === 0}
      problem={sending.problem}
      onYes={() => void yes()}
      onNo={onDone}
    >
      {host.admin === "active" && <p>It stays active: the next round may place others here. Drain it to keep it empty.</p>}
      <WouldMove preview={preview} names={namesOf(vms)} />
      <Command line={`fuga plan evacuate ${shellWord(host.name)} --approve`} calls={approval(preview)} />
    </ConfirmDialog>
  );
}

function Fence({ host, many }: { host: Host; many: string }) {
  const [asks, setAsks] = useState(false);
  return (
    <>
      <button type="button" class="danger" onClick={() => setAsks(true)}>
        Fence
      </button>
      {asks && <FenceAsks host={host} many={many} onDone={() => setAsks(false)} />}
    </>
  );
}

function FenceAsks({ host, many, onDone }: { host: Host; many: string; onDone: () => void }) {
  const [byHand, setByHand] = useState(!host.fence_target);
  const [sure, setSure] = useState(false);
  const sending = useSending();
  const path = `hosts/${encodeURIComponent(host.name)}/fence`;
  const body = { by_hand: byHand };
  const yes = async (): Promise<void> => {
    const done = await sending.run(async () => {
      await send<Host>("POST", path, { body });
    });
    if (done) onDone();
  };
  return (
    <ConfirmDialog
      title={`Fence ${host.name}?`}
      action={byHand ? "It is off" : "Fence"}
      danger
      busy={sending.busy}
      disabled={byHand ? !sure : !host.fence_target}
      problem={sending.problem}
      onYes={() => void yes()}
      onNo={onDone}
    >
      <p>
        {many} {many === "1 VM" ? "waits" : "wait"} for the next round once the host is proven to be off.{" "}
        {host.shared_pool
          ? `They keep their disks, in the shared pool ${host.shared_pool}.`
          : "Their disks are on it alone: they start over from their images, and what they had written is lost."}
      </p>
      <fieldset>
        <legend>Who switches it off</legend>
        <label class="check">
          <input
            type="radio"
            name="how"
            checked={!byHand}
            disabled={!host.fence_target}
            onChange={() => setByHand(false)}
          />{" "}
          fuga, by the site's fencing command
          {host.fence_target ? ` for ${host.fence_target}` : " (it has no fence target)"}
        </label>
        <label class="check">
          <input type="radio" name="how" checked={byHand} onChange={() => setByHand(true)} /> I did
        </label>
      </fieldset>
      {byHand && (
        <label class="check">
          <input type="checkbox" checked={sure} onChange={(event) => setSure(event.currentTarget.checked)} /> It is
          switched off, and I keep it off: two copies of a VM would destroy its disk
        </label>
      )}
      <Command
        line={`fuga host fence ${shellWord(host.name)}${byHand ? " --by-hand" : ""}`}
        calls={[{ method: "POST", path, body }]}
      />
    </ConfirmDialog>
  );
}

/** The calls by which a plan is decided, and then approved. */
function approval(preview: Preview): Call[] {
  return [
    { method: "POST", path: "plans", body: { kind: "evacuate", hosts: preview.hosts } },
    { method: "POST", path: `plans/${preview.plan?.id ?? "PLAN"}/approve`, body: {} },
  ];
}

const namesOf = (vms: Vm[]): Map<string, string> => new Map(vms.map((vm) => [vm.id, vm.name]));
