/** VMs as a table, and one VM. */
import { useState } from "preact/hooks";
import { get, newKey, Problem, send } from "../api/client";
import { changed, useLive, useRows } from "../api/live";
import { session } from "../api/session";
import type { ConsoleRead, Vm, VmExplanation } from "../api/types";
import { Command, Loading, Panel, State, Told } from "../parts/basics";
import { Deleting } from "../parts/deleting";
import { History } from "../parts/history";
import { type Column, Table } from "../parts/table";
import { go, route, to } from "../route";
import { useStore } from "../store";
import { age, moment, plain, shellWord } from "../words";

/** What is told of a VM: its host may be silent, its power under way. */
export function stateOf(vm: Vm): string {
  if (vm.desired === "deleted") return "deleting";
  if (vm.unknown_since) return "unknown";
  if (vm.power && vm.power.state !== "idle") return vm.power.state;
  return vm.paused_since ? "paused" : vm.observed;
}

const COLUMNS: Column<Vm>[] = [
  { name: "Name", value: (vm) => vm.name, cell: (vm) => <a href={to("vms", vm.id)}>{vm.name}</a> },
  { name: "Tenant", value: (vm) => vm.tenant, cell: (vm) => vm.tenant },
  { name: "Type", value: (vm) => vm.vm_type, cell: (vm) => vm.vm_type },
  { name: "State", value: stateOf, cell: (vm) => <State word={stateOf(vm)} /> },
  { name: "Host", value: (vm) => vm.host ?? "", cell: (vm) => vm.host ?? "waits" },
  { name: "Address", value: (vm) => vm.address ?? "", cell: (vm) => vm.address ?? "-" },
  { name: "Age", value: (vm) => -Date.parse(vm.created_at), cell: (vm) => age(vm.created_at), numeric: true },
  { name: "Last error", value: (vm) => vm.last_error ?? "", cell: (vm) => vm.last_error ?? "-" },
];

export function VmsView() {
  const { query } = useStore(route);
  const host = query.get("host");
  const { data, problem } = useRows<Vm>("vms", [{ host }]);
  return (
    <>
      <h1>VMs{host && ` on ${host}`}</h1>
      <Told problem={problem} />
      {data === null ? (
        problem === null && <Loading />
      ) : (
        <Table
          label="VMs"
          columns={COLUMNS}
          rows={data.rows}
          more={data.more}
          keyOf={(vm) => vm.id}
          nameOf={(vm) => vm.name}
          empty="No VMs."
          {...(session.readOnly
            ? {}
            : {
                actions: (chosen: Vm[], clear: () => void) => (
                  <Deleting things={chosen} path="vms" what="VM" onDone={clear} />
                ),
              })}
        />
      )}
      <Command line={`fuga vms${host ? ` --host ${shellWord(host)}` : ""}`} />
    </>
  );
}

export function VmView({ id }: { id: string }) {
  const path = `vms/${encodeURIComponent(id)}`;
  const { data: vm, problem } = useLive<Vm>(path);
  const why = useLive<VmExplanation>(`${path}/explanation`);
  if (vm === null) return problem ? <Told problem={problem} /> : <Loading />;
  const rows: [string, string | null | undefined][] = [
    ["Tenant", vm.tenant],
    ["Type", vm.vm_type],
    ["Address", vm.address],
    ["Network", vm.network],
    ["Host name", vm.hostname],
    ["Made", moment(vm.created_at)],
    ["Labels", Object.entries(vm.labels ?? {}).map(([key, value]) => `${key}=${value}`).join(", ")],
    ["Last error", vm.last_error],
    ["Id", vm.id],
  ];
  return (
    <>
      <h1>
        {vm.name} <State word={stateOf(vm)} />
      </h1>
      <p class="lead">
        {vm.host ? `On ${vm.host}` : "Not placed yet"}
        {vm.moving_to && `, moving to ${vm.moving_to}`}. Part of request{" "}
        <a href={to("requests", vm.request_id)}>{vm.name.replace(/-\d+$/, "")}</a>.
      </p>
      {!session.readOnly && vm.desired !== "deleted" && <Power vm={vm} />}
      <div class="panels">
        <Panel title="Why here">
          <Told problem={why.problem} />
          <p class="prose">{why.data?.message}</p>
          {(why.data?.utilities.length ?? 0) > 0 && (
            <p class="hint">The host evaluated {why.data?.utilities.length} combinations of VMs.</p>
          )}
          <Command line={`fuga explain ${vm.name}`} />
        </Panel>
        <Panel title="Facts">
          <dl>
            {rows
              .filter(([, value]) => value)
              .map(([name, value]) => (
                <div key={name}>
                  <dt>{name}</dt>
                  <dd>{value}</dd>
                </div>
              ))}
          </dl>
        </Panel>
      </div>
      <ConsoleLog vm={vm} />
      <History subject={vm.id} name={vm.name} />
    </>
  );
}

const SWITCHES = [
  ["start", "Start"],
  ["stop", "Stop"],
  ["reboot", "Reboot"],
] as const;

function Power({ vm }: { vm: Vm }) {
  const [problem, setProblem] = useState<Problem | null>(null);
  const [busy, setBusy] = useState(false);
  const possible = { start: vm.desired === "stopped", stop: vm.desired === "running", reboot: vm.desired === "running" };
  const press = async (what: string): Promise<void> => {
    setBusy(true);
    setProblem(null);
    try {
      await send("POST", `vms/${vm.id}/${what}`, { body: {}, key: newKey() });
      changed();
    } catch (found) {
      if (!(found instanceof Problem)) throw found;
      setProblem(found);
    }
    setBusy(false);
  };
  return (
    <div class="buttons">
      {SWITCHES.map(([what, name]) => (
        <button key={what} type="button" disabled={busy || !vm.host || !possible[what]} onClick={() => void press(what)}>
          {name}
        </button>
      ))}
      <Deleting things={[vm]} path="vms" what="VM" onDone={() => go("vms")} />
      <Told problem={problem} />
    </div>
  );
}

/** The end of what the guest wrote to its serial console, as text and nothing else. */
function ConsoleLog({ vm }: { vm: Vm }) {
  const [read, setRead] = useState<{ text: string; end: number } | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  const [busy, setBusy] = useState(false);
  const look = async (): Promise<void> => {
    setBusy(true);
    setProblem(null);
    try {
      const found = await get<ConsoleRead>(`vms/${vm.id}/console`, { bytes: 16_384 });
      const bytes = Uint8Array.from(atob(found.content), (each) => each.charCodeAt(0));
      setRead({ text: plain(new TextDecoder().decode(bytes)), end: found.end });
    } catch (found) {
      if (!(found instanceof Problem)) throw found;
      setProblem(found);
    }
    setBusy(false);
  };
  return (
    <Panel title="Serial console">
      <p class="buttons">
        <button type="button" disabled={busy || !vm.host} onClick={() => void look()}>
          {busy ? "Reading …" : read === null ? "Read the log" : "Read again"}
        </button>
        {read && <span class="hint">{read.end} bytes written so far; the last 16 KiB are here</span>}
      </p>
      <Told problem={problem} />
      {read && (
        <pre class="console" tabIndex={0} aria-label={`Console of ${vm.name}`}>
          {read.text || "(nothing written)"}
        </pre>
      )}
      <Command line={`fuga console ${vm.name} --log`} />
    </Panel>
  );
}
