/** VMs as a table, and one VM. */
import { useLive } from "../api/live";
import { session } from "../api/session";
import type { Vm, VmExplanation } from "../api/types";
import { Command, Fact, Loading, Panel, ProblemMessage, State } from "../parts/basics";
import { DeleteButton } from "../parts/delete_button";
import { History } from "../parts/history";
import { LabelButton } from "../parts/label_button";
import { Listing } from "../parts/listing";
import { PowerButtons } from "../parts/power_buttons";
import { aged, type Column } from "../parts/table";
import { go, route, to } from "../route";
import { useStore } from "../store";
import { moment, plain, shellWord } from "../words";
import { Console } from "./console";

/** The notice about a VM: its host may be silent, its power under way. */
export function stateOf(vm: Vm): string {
  if (vm.deleted_at) return "gone";
  if (vm.desired === "deleted") return "deleting";
  if (vm.unknown_since) return "unknown";
  if (vm.power && vm.power.state !== "idle") return vm.power.state;
  return vm.paused_since ? "paused" : vm.observed;
}

/** `small`, `small, spot` or `small, borrowed`. */
export const typeOf = (each: { vm_type: string; spot: boolean; borrowed?: boolean }): string =>
  [each.vm_type, each.spot && "spot", each.borrowed && "borrowed"].filter(Boolean).join(", ");

/** When a spot or borrowed VM ends, and for whom; null: it stays for now. */
export function endOf(vm: { ends_at?: string | null; ending_for?: string | null }): string | null {
  if (!vm.ends_at) return null;
  return `ends at ${moment(vm.ends_at)} to make room for ${vm.ending_for ? `request ${vm.ending_for}` : "another tenant"}`;
}

/** Operators look at hosts, too; tenants know them by other names. */
function HostName({ name }: { name: string }) {
  return session.isOperator ? <a href={to("hosts", name)}>{name}</a> : <>{name}</>;
}

const labelsOf = (vm: Vm): string =>
  Object.entries(vm.labels ?? {})
    .map(([key, value]) => `${key}=${value}`)
    .join(", ");

const COLUMNS: Column<Vm>[] = [
  { name: "Name", value: (vm) => vm.name, cell: (vm) => <a href={to("vms", vm.id)}>{vm.name}</a> },
  { name: "Tenant", value: (vm) => vm.tenant, cell: (vm) => vm.tenant },
  { name: "Type", value: typeOf, cell: typeOf },
  {
    name: "State",
    value: (vm) => `${stateOf(vm)} ${endOf(vm) ?? ""}`,
    cell: (vm) => (
      <>
        <State word={stateOf(vm)} />
        {vm.ends_at && <span class="why">{endOf(vm)}</span>}
      </>
    ),
  },
  { name: "Host", value: (vm) => vm.host ?? "", cell: (vm) => (vm.host ? <HostName name={vm.host} /> : "waits") },
  { name: "Address", value: (vm) => vm.address ?? "", cell: (vm) => vm.address ?? "-" },
  { name: "Labels", value: labelsOf, cell: (vm) => labelsOf(vm) || "-" },
  aged((vm) => vm.created_at),
  { name: "Last error", value: (vm) => vm.last_error ?? "", cell: (vm) => plain(vm.last_error ?? "-") },
];

const GONE: Column<Vm>[] = [
  { name: "Name", value: (vm) => vm.name, cell: (vm) => <a href={to("vms", vm.id)}>{vm.name}</a> },
  { name: "Tenant", value: (vm) => vm.tenant, cell: (vm) => vm.tenant },
  { name: "Type", value: typeOf, cell: typeOf },
  { name: "Gone since", value: (vm) => vm.deleted_at ?? "", cell: (vm) => moment(vm.deleted_at ?? "") },
  { name: "Id", value: (vm) => vm.id, cell: (vm) => vm.id },
];
const GONE_DAYS = 7;

/** Midnight a week ago: the same question all day. */
function weekAgo(): string {
  const day = new Date();
  day.setUTCHours(0, 0, 0, 0);
  day.setUTCDate(day.getUTCDate() - GONE_DAYS);
  return day.toISOString();
}

export function VmsView() {
  const { query } = useStore(route);
  const host = query.get("host");
  const gone = query.has("gone");
  return (
    <Listing
      title={gone ? `VMs gone within ${GONE_DAYS} days` : host ? `VMs on ${host}` : "VMs"}
      label="VMs"
      path="vms"
      searches
      queries={[gone ? { deleted_since: weekAgo() } : { host }]}
      line={gone ? `fuga vms --deleted --since ${GONE_DAYS}d` : `fuga vms${host ? ` --host ${shellWord(host)}` : ""}`}
      columns={gone ? GONE : COLUMNS}
      keyOf={(vm) => vm.id}
      nameOf={(vm) => vm.name}
      empty={gone ? `No VM is gone since ${GONE_DAYS} days.` : "No VMs."}
      actions={
        session.readOnly || gone
          ? undefined
          : (chosen, clear) => (
              <>
                <PowerButtons vms={chosen} />
                <LabelButton things={chosen} path="vms" />
                <DeleteButton things={chosen} path="vms" onDone={clear} />
              </>
            )
      }
    >
      <p class="buttons">
        <a class="button" href={gone ? "#/vms" : "#/vms?gone"}>
          {gone ? "Show those that are there" : "Show those that are gone"}
        </a>
      </p>
    </Listing>
  );
}

export function VmView({ id }: { id: string }) {
  const path = `vms/${encodeURIComponent(id)}`;
  const { data: vm, problem } = useLive<Vm>(path);
  const why = useLive<VmExplanation>(`${path}/explanation`);
  if (vm === null) return problem ? <ProblemMessage problem={problem} /> : <Loading />;
  return (
    <>
      <h1>
        {vm.name} <State word={stateOf(vm)} />
      </h1>
      <p class="lead">
        {vm.host ? (
          <>
            On <HostName name={vm.host} />
          </>
        ) : (
          "Not placed yet"
        )}
        {vm.moving_to && (
          <>
            , moving to <HostName name={vm.moving_to} />
          </>
        )}
        . Part of request{" "}
        <a href={to("requests", vm.request_id)}>{vm.name.replace(/-\d+$/, "")}</a>.
      </p>
      {vm.ends_at && vm.desired !== "deleted" && (
        <p class="message warn" role="status">
          This {vm.borrowed ? "borrowed" : "spot"} VM {endOf(vm)}. Its disk goes with it. If that request waits no more, the VM stays.
        </p>
      )}
      {vm.spot && !vm.ends_at && vm.desired !== "deleted" && (
        <p class="hint">A spot VM: it is in no share, and ends, with notice, when a request of others needs its room.</p>
      )}
      {vm.borrowed && !vm.ends_at && vm.desired !== "deleted" && (
        <p class="hint">A borrowed VM: it counts in the share, and ends, with notice, when a tenant with a smaller share needs its room.</p>
      )}
      {!session.readOnly && vm.desired !== "deleted" && (
        <>
          <div class="buttons">
            <PowerButtons vms={[vm]} />
            <LabelButton things={[vm]} path="vms" />
            <DeleteButton things={[vm]} path="vms" onDone={() => go("vms")} />
          </div>
          {(vm.desired === "stopped" ? ["start"] : ["stop", "reboot"]).map((what) => (
            <Command
              key={what}
              line={`fuga ${what} ${shellWord(vm.name)}`}
              calls={[{ method: "POST", path: `vms/${vm.id}/${what}`, body: {} }]}
            />
          ))}
        </>
      )}
      <div class="panels">
        <Panel title="Why here">
          <ProblemMessage problem={why.problem} />
          {why.data === null && why.problem === null && <Loading />}
          <p class="prose">{why.data?.message}</p>
          {(why.data?.utilities.length ?? 0) > 0 && (
            <p class="hint">The host evaluated {why.data?.utilities.length} combinations of VMs.</p>
          )}
          <Command line={`fuga explain ${shellWord(vm.name)}`} calls={[{ path: `${path}/explanation` }]} />
        </Panel>
        <Panel title="Facts">
          <dl>
            <Fact name="Tenant" value={vm.tenant} />
            <Fact name="Type" value={typeOf(vm)} />
            <Fact name="Address" value={vm.address} />
            <Fact name="MAC" value={vm.mac} />
            <Fact name="Network" value={vm.network} />
            <Fact name="Host name" value={vm.hostname} />
            <Fact name="Created" value={moment(vm.created_at)} />
            <Fact name="Labels" value={labelsOf(vm)} />
            <Fact name="Last error" value={vm.last_error} />
            <Fact name="Id" value={vm.id} />
          </dl>
        </Panel>
      </div>
      <Console vm={vm} />
      <History subject={vm.id} name={vm.name} />
    </>
  );
}
